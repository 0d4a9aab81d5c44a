// A router polls events over HTTP and accepts pushed events. The tests also cover the HTTP client
// and the state of a polled source.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "router/service/ingest/event_feeds.h"
#include "router/service/ingest/http_fetch.h"
#include "router/service/ingest/trtllm_writer.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "src/stream/net/waker.h"
#include "tests/router/service/event_server.h"
#include "tests/router/service/peer_engine.h"

namespace kvcast::router {
namespace {

using testing::kPeerBlock;
using testing::PeerEngine;
using testing::PeerFull;
using State = HttpAnswerReader::State;

TEST(HttpUrl, HasHostPortAndTarget) {
  const auto url = ParseHttpUrl("http://engine:8000/kv_cache_events?n=1").value();
  EXPECT_EQ(url.host, "engine");
  EXPECT_EQ(url.port, "8000");
  EXPECT_EQ(url.target, "/kv_cache_events?n=1");
  EXPECT_EQ(ParseHttpUrl("http://h").value().port, "80");
  EXPECT_EQ(ParseHttpUrl("http://h").value().target, "/");
  EXPECT_EQ(ParseHttpUrl("http://[::1]:9").value().host, "::1");
}

TEST(HttpUrl, OtherUrlsAreRefused) {
  for (const char* text :
       {"", "http://", "https://h", "tcp://h:1", "http://:80", "http://h:", "http://h:0",
        "http://h:70000", "http://h:8x", "http://[::1", "http://[", "http://u@h", "http://h/a b",
        "http://h/\r\nX: y", "http://h#f", "http://[::1]8"}) {
    EXPECT_FALSE(ParseHttpUrl(text).ok()) << text;
  }
}

struct Answer {
  State state = State::kMore;
  int status = 0;
  std::string body;
};
// Reads `step` bytes at a time, then ends the connection.
Answer ReadAnswer(const std::string& text, size_t step, size_t body_max = 1000) {
  HttpAnswerReader reader(body_max);
  Answer answer;
  for (size_t at = 0; at < text.size() && answer.state == State::kMore; at += step) {
    answer.state = reader.Read(std::string_view(text).substr(at, step));
  }
  if (answer.state == State::kMore) answer.state = reader.End();
  answer.status = reader.status();
  answer.body = reader.TakeBody();
  return answer;
}

TEST(HttpAnswerReader, TakesEachFormOfBodyInPieces) {
  const std::string forms[] = {
      "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
      "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"};
  for (const std::string& form : forms) {
    for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}}) {
      const Answer answer = ReadAnswer(form, step);
      EXPECT_EQ(answer.state, State::kComplete) << form << " by " << step;
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.body, "hello");
    }
  }
}

TEST(HttpAnswerReader, CutLongAndBrokenAnswersAreBad) {
  for (const char* text :
       {"", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", "SSH-2.0\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloxx0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"}) {
    EXPECT_EQ(ReadAnswer(text, 3).state, State::kBad) << text;
  }
  EXPECT_EQ(ReadAnswer("HTTP/1.0 200 OK\r\n\r\n" + std::string(1001, 'x'), 100).state, State::kBad);
  EXPECT_EQ(ReadAnswer("HTTP/1.0 200 OK\r\nA: " + std::string(70000, 'x'), 999).state, State::kBad);
}

TEST(HttpAnswerReader, TakesAFewInterimAnswers) {
  const std::string interim = "HTTP/1.1 100 \r\n\r\n";
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  std::string few;
  for (int i = 0; i < 8; ++i) few += interim;
  EXPECT_EQ(ReadAnswer(few + answer, 7).body, "hello");
  EXPECT_EQ(ReadAnswer(few + interim + answer, 7).state, State::kBad);
  EXPECT_EQ(ReadAnswer(few + interim + answer, 4096).state, State::kBad);
}

TEST(HttpAnswerReader, RefusesALongChunkLine) {
  for (const size_t step : {size_t{100}, size_t{4096}}) {
    const std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                             std::string(1100, 'x') + "\r\na\r\n0\r\n\r\n";
    EXPECT_EQ(ReadAnswer(text, step).state, State::kBad) << step;
  }
}

TEST(HttpAnswerReader, RefusesALongChunkBeforeItsBytes) {
  for (const char* size : {"3e9", "fffffffffffffffc"}) {
    HttpAnswerReader reader(1000);
    const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    EXPECT_EQ(reader.Read(head + size + "\r\nxx"), State::kBad) << size;
  }
}

TEST(HttpAnswerReader, DamagedAnswersHaveBoundedBodies) {
  std::mt19937 random(7);
  const std::string whole =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
  size_t bad = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    text[random() % text.size()] = static_cast<char>(random() % 256);
    text.resize(1 + random() % text.size());
    const Answer answer = ReadAnswer(text, 1 + random() % 9);
    bad += answer.state == State::kBad;
    EXPECT_LE(answer.body.size(), whole.size());
  }
  EXPECT_GT(bad, 10000u);
}

TEST(FeedState, IsSyncedOnlyAfterCompleteEvents) {
  FeedState feed(/*polled=*/true, /*stale_ms=*/3000, /*now_ms=*/0);
  EXPECT_EQ(feed.status(1).state, SourceState::kConnecting);
  EXPECT_EQ(feed.status(kUnheardMs).reason, SourceReason::kUnheard);
  feed.OnEmpty(20);
  EXPECT_EQ(feed.status(20).state, SourceState::kCleared)
      << "another client may have taken the first events";
  EXPECT_EQ(feed.status(20).reason, SourceReason::kJoining);
  feed.OnApplied(BatchResult::kComplete, 30);
  EXPECT_EQ(feed.status(30).state, SourceState::kSynced);
  EXPECT_EQ(feed.status(30).next_seq, 1u);
  feed.OnApplied(BatchResult::kIncomplete, 40);
  EXPECT_EQ(feed.status(40).state, SourceState::kCleared);
  EXPECT_EQ(feed.status(40).reason, SourceReason::kLostBatches);
  EXPECT_EQ(feed.status(40).gaps, 1u);
}

TEST(FeedState, IsStaleWhilePollsFailAndBackAfterAnAnswer) {
  FeedState feed(true, 3000, 0);
  feed.OnApplied(BatchResult::kComplete, 0);
  feed.OnFailedPoll(FetchOutcome::kAnswered, 404, 100);
  EXPECT_EQ(feed.status(3099).state, SourceState::kSynced);
  EXPECT_EQ(feed.status(3100).state, SourceState::kStale);
  EXPECT_EQ(feed.status(3100).weight, 0.5);
  EXPECT_EQ(feed.status(30100).weight, 0);
  feed.OnEmpty(40000);
  EXPECT_EQ(feed.status(40000).state, SourceState::kSynced) << "the server answered all the time";
  EXPECT_EQ(feed.status(40000).reconnects, 1u);
}

TEST(FeedState, IsSuspectAfterAnOutageUntilTheNextEvent) {
  FeedState feed(true, 3000, 0);
  feed.OnApplied(BatchResult::kComplete, 0);
  feed.OnFailedPoll(FetchOutcome::kUnreached, 0, 100);
  EXPECT_EQ(feed.status(3099).state, SourceState::kSuspect);
  EXPECT_EQ(feed.status(3100).state, SourceState::kStale);
  EXPECT_EQ(feed.status(3100).weight, 0.5);
  feed.OnEmpty(7000);
  EXPECT_EQ(feed.status(7000).state, SourceState::kSuspect)
      << "the server may belong to another run of the engine";
  EXPECT_EQ(feed.status(7000).weight, 0.25);
  EXPECT_EQ(feed.status(40000).weight, 0);
  EXPECT_EQ(feed.status(40000).reconnects, 1u);
  EXPECT_EQ(feed.counters().failures, 1u);
  feed.OnApplied(BatchResult::kComplete, 41000);
  EXPECT_EQ(feed.status(41000).state, SourceState::kSynced);
  EXPECT_EQ(feed.status(41000).weight, 1);
}

TEST(FeedState, AnEngineThatStartsAfterTheRouterIsNotSuspect) {
  FeedState feed(true, 3000, 0);
  feed.OnFailedPoll(FetchOutcome::kUnreached, 0, 100);
  EXPECT_EQ(feed.status(200).state, SourceState::kConnecting);
  feed.OnEmpty(40000);
  EXPECT_EQ(feed.status(40000).state, SourceState::kCleared);
  EXPECT_EQ(feed.status(40000).weight, 1);
}

TEST(FeedState, IsSuspectAfterALostAnswerUntilTheNextEvent) {
  FeedState feed(true, 3000, 0);
  feed.OnApplied(BatchResult::kComplete, 0);
  feed.OnFailedPoll(FetchOutcome::kCut, 0, 10);
  EXPECT_EQ(feed.status(11).state, SourceState::kSuspect);
  feed.OnEmpty(20);
  EXPECT_EQ(feed.status(21).state, SourceState::kSuspect)
      << "only the next event shows whether events were lost";
  feed.OnApplied(BatchResult::kComplete, 30);
  EXPECT_EQ(feed.status(30).state, SourceState::kSynced) << "no event was lost";
}

TEST(FeedState, EmptyAnswersAfterALostAnswerDoNotRaiseTheWeight) {
  FeedState feed(true, 3000, 0);
  feed.OnApplied(BatchResult::kComplete, 0);
  feed.OnFailedPoll(FetchOutcome::kCut, 0, 1000);
  for (int64_t now = 2000; now <= 40000; now += 1000) feed.OnEmpty(now);
  EXPECT_EQ(feed.status(5999).weight, 0.5);
  EXPECT_EQ(feed.status(6000).weight, 0.25);
  EXPECT_EQ(feed.status(40000).state, SourceState::kSuspect);
  EXPECT_EQ(feed.status(40000).weight, 0);
  feed.OnApplied(BatchResult::kComplete, 41000);
  EXPECT_EQ(feed.status(41000).weight, 1);
}

TEST(FeedState, AFailureAfterALostAnswerDoesNotRaiseTheWeight) {
  FeedState feed(true, 3000, 0);
  feed.OnApplied(BatchResult::kComplete, 0);
  feed.OnFailedPoll(FetchOutcome::kCut, 0, 1000);
  feed.OnEmpty(7000);
  EXPECT_EQ(feed.status(7000).weight, 0.25);
  feed.OnFailedPoll(FetchOutcome::kAnswered, 404, 8000);
  EXPECT_EQ(feed.status(8000).weight, 0.25);
}

TEST(FeedState, ALostAnswerAfterAFailureDoesNotRaiseTheWeight) {
  FeedState feed(true, 3000, 0);
  feed.OnApplied(BatchResult::kComplete, 0);
  feed.OnFailedPoll(FetchOutcome::kAnswered, 404, 1000);
  EXPECT_EQ(feed.status(7000).weight, 0.25);
  feed.OnFailedPoll(FetchOutcome::kCut, 0, 7000);
  EXPECT_EQ(feed.status(7000).weight, 0.25);
  feed.OnFailedPoll(FetchOutcome::kUnreached, 0, 8000);
  EXPECT_EQ(feed.status(8000).weight, 0.25);
}

// A gateway that answers with 502 may have taken the events from the engine.
TEST(FeedState, IsSuspectAfterAServerErrorUntilTheNextEvent) {
  FeedState feed(true, 3000, 0);
  feed.OnFailedPoll(FetchOutcome::kAnswered, 502, 0);
  feed.OnEmpty(1);
  EXPECT_EQ(feed.status(1).state, SourceState::kCleared) << "no event has arrived yet";
  feed.OnApplied(BatchResult::kComplete, 2);
  for (const int status : {500, 599}) {
    feed.OnFailedPoll(FetchOutcome::kAnswered, status, 3);
    feed.OnEmpty(4);
    EXPECT_EQ(feed.status(4).state, SourceState::kSuspect) << status;
    feed.OnApplied(BatchResult::kComplete, 5);
    EXPECT_EQ(feed.status(5).state, SourceState::kSynced);
  }
  feed.OnFailedPoll(FetchOutcome::kAnswered, 499, 6);
  feed.OnEmpty(7);
  EXPECT_EQ(feed.status(7).state, SourceState::kSynced) << "the engine has kept its events";
}

TEST(Fetch, ShowsWhetherTheRequestWasSent) {
  EventServer server;
  const HttpUrl url = ParseHttpUrl(server.url()).value();
  const FetchResult answer = Fetch(url, {.method = "POST"});
  EXPECT_EQ(answer.outcome, FetchOutcome::kAnswered);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "[]");
  EXPECT_EQ(Fetch(url, {.method = "GET"}).status, 404);
  EXPECT_EQ(Fetch(ParseHttpUrl("http://127.0.0.1:1").value(), {}).outcome,
            FetchOutcome::kUnreached);
  EXPECT_EQ(Fetch(url, {.method = "POST", .body_max = 1}).outcome, FetchOutcome::kCut);
}

TEST(Fetch, IsStoppedWhileItWaits) {
  const auto stop = stream::Waker::Create().value();
  httplib::Server server;
  std::atomic<bool> asked{false};
  std::atomic<bool> done{false};
  server.Post("/", [&](const httplib::Request&, httplib::Response&) {
    asked = true;
    while (!done) std::this_thread::yield();
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread listening([&] { server.listen_after_bind(); });
  std::thread stopping([&] {
    while (!asked) std::this_thread::yield();
    stop->Wake();
  });
  const HttpUrl url = ParseHttpUrl("http://127.0.0.1:" + std::to_string(port)).value();
  const FetchResult result =
      Fetch(url, {.method = "POST", .timeout_ms = 60'000, .stop_fd = stop->descriptor()});
  EXPECT_EQ(result.outcome, FetchOutcome::kStopped);
  done = true;
  stopping.join();
  server.stop();
  listening.join();
}

// The server sends chunks of one byte without a pause, so the client never waits for bytes.
TEST(Fetch, AnAnswerWithoutEndEndsAtTheDeadlineOrIsStopped) {
  httplib::Server server;
  std::atomic<int> chunks{0};
  std::atomic<bool> done{false};
  const std::string many(4096, 'x');
  server.Get("/", [&](const httplib::Request&, httplib::Response& reply) {
    reply.set_chunked_content_provider("text/plain", [&](size_t, httplib::DataSink& sink) {
      if (done) return false;
      ++chunks;
      return sink.write(many.data(), 1);
    });
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread listening([&] { server.listen_after_bind(); });
  const HttpUrl url = ParseHttpUrl("http://127.0.0.1:" + std::to_string(port)).value();
  EXPECT_EQ(Fetch(url, {.timeout_ms = 50}).outcome, FetchOutcome::kCut);
  const auto stop = stream::Waker::Create().value();
  std::thread stopping([&, before = chunks.load()] {
    while (chunks < before + 1000) std::this_thread::yield();
    stop->Wake();
  });
  const FetchResult result = Fetch(url, {.timeout_ms = 3'600'000, .stop_fd = stop->descriptor()});
  EXPECT_EQ(result.outcome, FetchOutcome::kStopped);
  done = true;
  stopping.join();
  server.stop();
  listening.join();
}

// A lookup of a host name. It does not end before this object is destroyed.
class EndlessLookup {
 public:
  stream::NameResolver::Function function() const {
    return [state = state_](const std::string&) {
      state->begun = true;
      while (!state->may_end) std::this_thread::yield();
      return std::string();
    };
  }
  void AwaitBegin() const {
    while (!state_->begun) std::this_thread::yield();
  }
  ~EndlessLookup() { state_->may_end = true; }

 private:
  struct State {
    std::atomic<bool> begun{false};
    std::atomic<bool> may_end{false};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(EventFeeds, TheRemovalOfAWorkerDoesNotWaitForALookup) {
  const EndlessLookup lookup;
  FeedConfig config;
  config.now_ms = [] { return int64_t{0}; };
  config.timeout_ms = 3'600'000;
  config.lookup = lookup.function();
  EventFeeds feeds(config, FeedSink());
  ASSERT_TRUE(feeds.Add(WorkerId(1), "http://engine.test:1/events", /*poll_ms=*/1).ok());
  feeds.Begin();
  lookup.AwaitBegin();
  feeds.Remove(WorkerId(1));
  EXPECT_FALSE(feeds.Has(WorkerId(1)));
}

TEST(Fetch, ALookupEndsAtTheDeadline) {
  const EndlessLookup lookup;
  stream::NameResolver resolver(lookup.function());
  const HttpUrl url = ParseHttpUrl("http://engine.test:1").value();
  const FetchResult result = Fetch(url, {.timeout_ms = 20, .resolver = &resolver});
  EXPECT_EQ(result.outcome, FetchOutcome::kUnreached);
  EXPECT_EQ(result.error, "engine.test: no address in time");
}

TEST(Fetch, ANameIsReachedByItsAddress) {
  EventServer server;
  stream::NameResolver resolver([](const std::string& name) {
    return name == "engine.test" ? std::string("127.0.0.1") : std::string();
  });
  HttpUrl url = ParseHttpUrl(server.url()).value();
  url.host = "engine.test";
  EXPECT_EQ(Fetch(url, {.method = "POST", .resolver = &resolver}).status, 200);
  url.host = "other.test";
  EXPECT_EQ(Fetch(url, {.resolver = &resolver}).error, "other.test: no address");
}

// A push that takes long to apply.
class SlowApply {
 public:
  SlowApply() : feeds_(ConfigOf(), SinkOf()) {
    EXPECT_TRUE(feeds_.Add(kWorker, std::string(kPushEndpoint), /*poll_ms=*/1).ok());
  }
  void BeginPush() {
    thread_ = std::thread([this] { EXPECT_TRUE(feeds_.Push(kWorker, "[0]").ok()); });
    while (!applying_) std::this_thread::yield();
  }
  void EndPush() {
    may_end_ = true;
    thread_.join();
  }
  EventFeeds& feeds() { return feeds_; }
  int resets() const { return resets_; }

  static constexpr WorkerId kWorker{1};

 private:
  static FeedConfig ConfigOf() {
    FeedConfig config;
    config.now_ms = [] { return int64_t{0}; };
    return config;
  }
  FeedSink SinkOf() {
    FeedSink sink;
    sink.apply = [this](WorkerId, Seq, std::span<const uint8_t>) {
      applying_ = true;
      while (!may_end_) std::this_thread::yield();
      return BatchResult::kComplete;
    };
    sink.on_reset = [this](WorkerId, ResetReason) { ++resets_; };
    return sink;
  }

  std::atomic<bool> applying_{false};
  std::atomic<bool> may_end_{false};
  std::atomic<int> resets_{0};
  EventFeeds feeds_;
  std::thread thread_;
};

TEST(EventFeeds, AStatusDoesNotWaitForEventsThatAreApplied) {
  SlowApply slow;
  slow.BeginPush();
  EXPECT_EQ(slow.feeds().status(SlowApply::kWorker).batches, 0u);
  EXPECT_EQ(slow.feeds().counters(SlowApply::kWorker).answers, 0u);
  slow.EndPush();
  EXPECT_EQ(slow.feeds().status(SlowApply::kWorker).state, SourceState::kSynced);
}

TEST(EventFeeds, ContradictedBlocksAreDroppedAfterTheEventsThatAreApplied) {
  SlowApply slow;
  slow.BeginPush();
  slow.feeds().Contradict(SlowApply::kWorker);
  EXPECT_EQ(slow.resets(), 0);
  slow.EndPush();
  EXPECT_EQ(slow.resets(), 1);
  EXPECT_EQ(slow.feeds().status(SlowApply::kWorker).state, SourceState::kCleared);
  EXPECT_EQ(slow.feeds().status(SlowApply::kWorker).reason, SourceReason::kContradicted);
  slow.feeds().Contradict(SlowApply::kWorker);
  EXPECT_EQ(slow.resets(), 2);
}

// After kUndecodable, the sink holds no blocks of the worker. EventFeeds calls on_reset, so that
// the subscribers of the relay drop the blocks too.
TEST(EventFeeds, AnUndecodablePushIsAReset) {
  int resets = 0;
  FeedSink sink;
  sink.apply = [](WorkerId, Seq, std::span<const uint8_t>) { return BatchResult::kUndecodable; };
  sink.on_reset = [&resets](WorkerId, ResetReason) { ++resets; };
  FeedConfig config;
  config.now_ms = [] { return int64_t{0}; };
  EventFeeds feeds(config, sink);
  constexpr WorkerId kWorker{1};
  ASSERT_TRUE(feeds.Add(kWorker, std::string(kPushEndpoint), /*poll_ms=*/1).ok());
  EXPECT_EQ(feeds.Push(kWorker, "not json").code(), StatusCode::kMalformed);
  EXPECT_EQ(resets, 1);
  EXPECT_EQ(feeds.status(kWorker).reason, SourceReason::kUndecodable);
  EXPECT_EQ(feeds.status(kWorker).resets, 1u);
}

// The clock stands still, so the state never becomes stale.
TEST(EventFeeds, AnEngineOutOfReachIsSuspect) {
  constexpr WorkerId kWorker{1};
  FeedConfig config;
  config.now_ms = [] { return int64_t{0}; };
  FeedSink sink;
  sink.apply = [](WorkerId, Seq, std::span<const uint8_t>) { return BatchResult::kComplete; };
  auto server = std::make_unique<EventServer>();
  EventFeeds feeds(config, sink);
  ASSERT_TRUE(feeds.Add(kWorker, server->url(), /*poll_ms=*/1).ok());
  feeds.Begin();
  server->Queue(R"([{"event_id": 0}])");
  while (feeds.status(kWorker).batches == 0) std::this_thread::yield();
  EXPECT_EQ(feeds.status(kWorker).state, SourceState::kSynced);
  const uint64_t failures = feeds.counters(kWorker).failures;
  server.reset();
  while (feeds.counters(kWorker).failures == failures) std::this_thread::yield();
  EXPECT_EQ(feeds.status(kWorker).state, SourceState::kSuspect);
}

WorkerRegistration TrtllmAt(const std::string& endpoint, const std::string& name = "engine") {
  WorkerRegistration source;
  source.worker.name = name;
  source.endpoint = endpoint;
  source.format = EventFormat::kTrtllm;
  source.trtllm = {.window_sizes = {4096}, .partial_reuse = false, .tokens_per_block = kPeerBlock};
  source.poll_ms = 1;
  return source;
}

WorkerRegistration TwoRanksAt(const std::string& endpoint) {
  WorkerRegistration source = TrtllmAt(endpoint);
  source.data_parallel_size = 2;
  source.rank_by_tag = true;
  return source;
}

struct FeedServiceTest : ::testing::Test {
  void Start(std::vector<WorkerRegistration> sources) {
    RouterOptions options;
    options.sources = std::move(sources);
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    return client;
  }
  Json Ask(const std::vector<TokenId>& prompt) const {
    const auto reply =
        Client().Post("/v1/query", Json{{"tokens", prompt}}.dump(), "application/json");
    return reply && reply->status == 200 ? Json::parse(reply->body).at("workers") : Json();
  }
  // Returns the answers as soon as `done` holds for them. Fails after a minute.
  Json AskUntil(const std::vector<TokenId>& prompt, const std::function<bool(const Json&)>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    Json workers = Ask(prompt);
    while (!(workers.is_array() && done(workers)) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      workers = Ask(prompt);
    }
    EXPECT_TRUE(done(workers)) << workers.dump();
    return workers;
  }
  // Returns the value of `sample` on the metrics page, or -1 if the page lacks the sample.
  double Metric(const std::string& sample) const {
    const std::string page = "\n" + Client().Get("/metrics")->body;
    const size_t at = page.find("\n" + sample + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + sample.size() + 2));
  }

  std::unique_ptr<RouterService> service;
};

const auto kSynced = [](const Json& workers) { return workers.at(0).at("state") == "synced"; };

// In each turn, the engine runs a prompt, and `send` gives its events to the router. The router's
// answer for the next prompt must then equal the engine's lookup.
void ExpectExact(FeedServiceTest& test, const std::function<void(const std::string&)>& send) {
  PeerEngine engine({PeerFull()}, 64, 3);
  TrtllmWriter writer({.window_sizes = {4096}, .tokens_per_block = kPeerBlock});
  int64_t hits = 0;
  uint64_t lists = 0;
  for (int turn = 0; turn < 120; ++turn) {
    const auto prompt = engine.NextPrompt();
    EventBatch batch;
    batch.events = engine.Run(prompt);
    std::string json;
    ASSERT_TRUE(writer.Write(batch, json).ok());
    if (json != "[]") {
      send(json);
      ++lists;
    }
    const auto next = engine.NextPrompt();
    const int64_t hit = engine.Lookup(next);
    hits += hit > 0 ? 1 : 0;
    const Json workers = test.AskUntil(
        next, [&](const Json& w) { return kSynced(w) && w.at(0).at("next_seq") == lists; });
    ASSERT_EQ(workers[0].at("reusable_tokens"), hit) << turn << workers.dump();
    ASSERT_EQ(workers[0].at("exact"), true) << workers.dump();
    ASSERT_EQ(workers[0].at("named_by"), "content");
  }
  EXPECT_GT(hits, 20);
}

TEST_F(FeedServiceTest, APolledEngineIsFollowedExactly) {
  EventServer server;
  Start({TrtllmAt(server.url())});
  ExpectExact(*this, [&](const std::string& json) { server.Queue(json); });
  EXPECT_GE(Metric(R"(kvcast_feed_answers_total{worker="engine"})"), 100);
  EXPECT_EQ(Metric(R"(kvcast_feed_failures_total{worker="engine"})"), 0);
  EXPECT_EQ(
      Metric(R"(kvcast_format_left_out_total{worker="engine",format="trtllm",reason="bad_event"})"),
      0);
}

TEST_F(FeedServiceTest, AnEngineThatTakesGetIsFollowedToo) {
  EventServer server(/*with_get=*/true);
  Start({TrtllmAt(server.url())});
  TrtllmWriter writer({.window_sizes = {4096}, .tokens_per_block = kPeerBlock});
  std::string json;
  ASSERT_TRUE(writer.Write({}, json).ok());
  server.Queue(json);
  AskUntil({1, 2}, kSynced);
  EXPECT_GE(Metric(R"(kvcast_feed_failures_total{worker="engine"})"), 1);
}

TEST_F(FeedServiceTest, APushedEngineIsFollowedExactly) {
  Start({TrtllmAt("push")});
  ExpectExact(*this, [&](const std::string& json) {
    const auto reply = Client().Post("/v1/events?worker=engine", json, "application/json");
    ASSERT_TRUE(reply);
    ASSERT_EQ(reply->status, 200) << reply->body;
  });
}

TEST_F(FeedServiceTest, BadPushesAreRefusedAndCounted) {
  EventServer server;
  Start({TrtllmAt("push"), TrtllmAt(server.url(), "polled")});
  const auto push = [&](const std::string& query, const std::string& body) {
    return Client().Post("/v1/events" + query, body, "application/json")->status;
  };
  EXPECT_EQ(push("", "[]"), 400);
  EXPECT_EQ(push("?worker=nobody", "[]"), 404);
  EXPECT_EQ(push("?worker=polled", "[]"), 409);
  EXPECT_EQ(push("?worker=engine", "not json"), 400);
  EXPECT_EQ(push("?worker=engine", R"([{"event_id": 0}])"), 200)
      << "the list is accepted, and the bad event is counted";
  EXPECT_EQ(Metric(R"(kvcast_wire_undecodable_batches_total{worker="engine"})"), 1);
  EXPECT_EQ(
      Metric(R"(kvcast_format_left_out_total{worker="engine",format="trtllm",reason="bad_event"})"),
      1);
  EXPECT_EQ(Ask({1, 2})[0].at("exact"), false);
}

TEST_F(FeedServiceTest, AnUnreachableEngineIsStaleAndARestartedEngineIsFollowed) {
  auto server = std::make_unique<EventServer>();
  Start({TrtllmAt(server->url())});
  const auto stored = [](int64_t hash, TokenId first) {
    Json tokens = Json::array();
    for (TokenId k = 0; k < 4; ++k)
      tokens.push_back({{"token_id", first + k}, {"token_extra_id", 0}});
    return Json::array({{{"event_id", 0},
                         {"window_size", 4096},
                         {"data",
                          {{"type", "stored"},
                           {"parent_hash", nullptr},
                           {"blocks", {{{"block_hash", hash}, {"tokens", tokens}}}}}}}})
        .dump();
  };
  server->Queue(stored(1, 1));
  AskUntil({1, 2, 3, 4, 5}, [](const Json& w) { return w.at(0).at("reusable_tokens") == 4; });
  server->AnswerWith(503);
  AskUntil({1, 2, 3, 4, 5}, [](const Json& w) { return w.at(0).at("state") == "stale"; });
  server->AnswerWith(200);
  server->Queue(stored(2, 21));
  AskUntil({21, 22, 23, 24, 25},
           [](const Json& w) { return kSynced(w) && w.at(0).at("reusable_tokens") == 4; });
  EXPECT_EQ(Ask({1, 2, 3, 4, 5})[0].at("reusable_tokens"), 0);
  EXPECT_EQ(Metric(R"(kvcast_source_epochs_total{worker="engine"})"), 1);
}

TEST_F(FeedServiceTest, RanksOfOneUrlAreWorkersOfTheirOwn) {
  EventServer server;
  Start({TwoRanksAt(server.url())});
  TrtllmWriter ranks[] = {
      TrtllmWriter({.window_sizes = {4096}, .tokens_per_block = 4, .attention_dp_rank = 0}),
      TrtllmWriter({.window_sizes = {4096}, .tokens_per_block = 4, .attention_dp_rank = 1})};
  Json all = Json::array();
  for (int64_t rank = 0; rank < 2; ++rank) {
    BlockStored stored;
    stored.block_size = 4;
    stored.block_hashes = {BlockHash::FromUnsigned(7)};
    stored.token_ids = std::vector<TokenId>{100 * rank, 1, 2, 3};
    EventBatch batch;
    batch.events = {stored};
    std::string json;
    ASSERT_TRUE(ranks[rank].Write(batch, json).ok());
    for (const Json& event : Json::parse(json)) all.push_back(event);
  }
  server.Queue(all.dump());
  const Json workers = AskUntil({100, 1, 2, 3, 4}, [](const Json& w) {
    return kSynced(w) && w.at(1).at("state") == "synced";
  });
  EXPECT_EQ(workers[0].at("name"), "engine-dp0");
  EXPECT_EQ(workers[0].at("reusable_tokens"), 0);
  EXPECT_EQ(workers[1].at("name"), "engine-dp1");
  EXPECT_EQ(workers[1].at("reusable_tokens"), 4);
  EXPECT_EQ(
      Metric(
          R"(kvcast_format_left_out_total{worker="engine-dp0",format="trtllm",reason="other_rank"})"),
      2);
}

// Each rank has its own event numbers. After a lost answer, the events of another rank do not show
// whether events of this rank were lost.
TEST_F(FeedServiceTest, EventsOfAnotherRankDoNotEndTheStateSuspect) {
  EventServer server;
  Start({TwoRanksAt(server.url())});
  const auto stored = [](int64_t rank, int64_t id, TokenId first) {
    Json tokens = Json::array();
    for (TokenId k = 0; k < 4; ++k)
      tokens.push_back({{"token_id", first + k}, {"token_extra_id", 0}});
    return Json{{"event_id", id},
                {"window_size", 4096},
                {"attention_dp_rank", rank},
                {"data",
                 {{"type", "stored"},
                  {"parent_hash", nullptr},
                  {"blocks", {{{"block_hash", first}, {"tokens", tokens}}}}}}};
  };
  const auto state_is = [](size_t rank, const char* state) {
    return [=](const Json& w) { return w.at(rank).at("state") == state; };
  };
  server.Queue(Json::array({stored(0, 0, 1), stored(1, 0, 101)}).dump());
  AskUntil({1, 2, 3, 4, 5}, state_is(0, "synced"));
  AskUntil({1, 2, 3, 4, 5}, state_is(1, "synced"));
  server.AnswerWith(503);
  AskUntil({1, 2, 3, 4, 5}, [](const Json& w) { return w.at(1).at("state") != "synced"; });
  server.AnswerWith(200);
  server.Queue(Json::array({stored(0, 1, 21)}).dump());
  AskUntil({21, 22, 23, 24, 25},
           [](const Json& w) { return kSynced(w) && w.at(0).at("reusable_tokens") == 4; });
  const Json rank = Ask({101, 102, 103, 104, 105}).at(1);
  EXPECT_EQ(rank.at("state"), "suspect");
  EXPECT_EQ(rank.at("exact"), false);
  server.Queue(Json::array({stored(1, 1, 121)}).dump());
  AskUntil({121, 122, 123, 124, 125}, state_is(1, "synced"));
}

// The router continues to poll another source, with the same interval.
TEST_F(FeedServiceTest, ARemovedSourceIsNotPolledAnyMore) {
  constexpr int kPolls = 20;
  EventServer server;
  EventServer other;
  Start({TrtllmAt(server.url()), TrtllmAt(other.url(), "other")});
  ASSERT_TRUE(server.AwaitPolls(3));
  ASSERT_EQ(Client().Delete("/v1/sources?name=engine")->status, 200);
  const int polls = server.polls();
  ASSERT_TRUE(other.AwaitPolls(other.polls() + kPolls));
  // A poll that was in flight during the deletion may be counted later.
  EXPECT_LE(server.polls(), polls + 1);
  const Json source = {{"name", "engine"},       {"endpoint", server.url()}, {"format", "trtllm"},
                       {"window_sizes", {4096}}, {"tokens_per_block", 4},    {"poll_ms", 1}};
  ASSERT_EQ(Client().Post("/v1/sources", source.dump(), "application/json")->status, 201);
  EXPECT_TRUE(server.AwaitPolls(polls + kPolls));
}

}  // namespace
}  // namespace kvcast::router
