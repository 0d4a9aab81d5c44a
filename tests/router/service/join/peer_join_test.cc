// A router that joins a running router knows the blocks of its engines at once, and every exact
// answer is the result of the engine's own lookup. A join that fails is a cold start with a reason.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/service/discovery/curl_client.h"
#include "router/service/join/state_stream.h"
#include "router/service/router_service.h"
#include "router/service/state/saved_workers.h"
#include "src/base/clock.h"
#include "tests/router/service/state/state_engine.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::LogLines;
using kvcast::testing::StateEngine;
using stream::Eventually;

// A router that has no state replays at least this number of batches. A router that has the state
// replays the batch that proves that the publisher is still the same, and heartbeats.
constexpr uint64_t kHistory = 40;
constexpr char kStatePath[] = "/v1/admin/state";

std::string Get(int port, const std::string& path, int status = 200,
                const std::string& token = "") {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(60);
  httplib::Headers headers;
  if (!token.empty()) headers.emplace("Authorization", "Bearer " + token);
  const auto answer = client.Get(path, headers);
  EXPECT_TRUE(answer);
  if (!answer) return "";
  EXPECT_EQ(answer->status, status) << path << ": " << answer->body.substr(0, 200);
  return answer->body;
}

// A router and its log.
struct TestRouter {
  TestRouter() {
    options.log = &lines.log();
    options.ingest_threads = 2;
    options.admin_http.emplace();
    options.make_client = MakeCurlClient;
  }
  void Start() {
    service.reset();
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(service->admin_port()); }
  WorkerReport Worker(size_t i = 0) const { return service->workers().at(i); }
  std::string Metric(const std::string& name) const {
    const std::string page = Get(service->http_port(), "/metrics");
    const size_t at = page.find("\n" + name + " ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 2;
    return page.substr(begin, page.find('\n', begin) - begin);
  }
  // Waits until the worker is synced. If the publisher has digests, also waits for a comparison
  // with a digest.
  bool AwaitSynced(const StateEngine& engine, size_t i = 0) const {
    return engine.AwaitFollowed(*service, i);
  }
  // The answers to `prompts` prompts must be exact, and equal the engine's own lookup.
  void ExpectExact(StateEngine& engine, int prompts = 30) const {
    ASSERT_TRUE(AwaitSynced(engine));
    EXPECT_EQ(Worker().stream.digest_mismatches, 0u);
    engine.ExpectExactAnswers(*service, prompts);
  }
  // All blocks of the router's index, as texts.
  std::multiset<std::string> Blocks() const {
    std::multiset<std::string> blocks;
    const auto dump = nlohmann::json::parse(Get(service->admin_port(), "/dump"));
    for (const auto& scope : dump) {
      for (const auto& event : scope["events"]) {
        for (const auto& block : event["event"]["data"]["stored"]["blocks"]) {
          blocks.insert(event["medium"].dump() + event["group_idx"].dump() + block.dump());
        }
      }
    }
    return blocks;
  }

  LogLines lines{LogLevel::kDebug};
  RouterOptions options;
  std::unique_ptr<RouterService> service;
};

// true: the publisher has epochs (KVX1, see src/residency/extension.h). false: only the publisher's
// batches prove that it is still the same.
class PeerJoinTest : public ::testing::TestWithParam<bool> {
 protected:
  // The running router saves its state, and has therefore its own secret of the content keys.
  PeerJoinTest() { first.options.state.folder = folder.File("first"); }

  // Starts the first router, which follows `engine`.
  void StartFirst(StateEngine& engine, int turns = 60) {
    first.options.sources = second.options.sources = {engine.Source()};
    first.Start();
    engine.Run(turns);
    ASSERT_NO_FATAL_FAILURE(first.ExpectExact(engine));
    second.options.peer.url = first.url();
  }
  // The second router has joined no other router, and joins its engine by replay.
  void ExpectColdStart(StateEngine& engine, const std::string& reason, const std::string& error) {
    second.Start();
    EXPECT_EQ(second.lines.With({"warning peer_join_failed", "reason=" + reason, error}).size(), 1u)
        << reason << ": " << error;
    EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"" + reason + "\"}"), "1");
    EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"complete\"}"), "0");
    EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "0");
    ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
    EXPECT_GE(second.Worker().stream.replayed, kHistory);
  }

  // The client of the second router calls `answer` for each request. `stopped` is true after the
  // client was stopped.
  void Answer(std::function<HttpOutcome(const HttpGet&, const std::atomic<bool>& stopped)> answer) {
    second.options.make_client = [answer] {
      const auto stopped = std::make_shared<std::atomic<bool>>(false);
      return HttpClient{.get = [=](const HttpGet& get) { return answer(get, *stopped); },
                        .stop = [stopped] { *stopped = true; }};
    };
  }
  void AnswerWith(const std::string& bytes, int status = 200) {
    Answer([=](const HttpGet& get, const auto&) {
      const bool taken = get.on_bytes(status, {}) && get.on_bytes(status, bytes);
      return HttpOutcome{status, taken ? "" : "ended"};
    });
  }
  std::string State() const { return Get(first.service->admin_port(), kStatePath); }

  stream::TemporaryFolder folder;
  TestRouter first;
  TestRouter second;
};
INSTANTIATE_TEST_SUITE_P(Publishers, PeerJoinTest, ::testing::Bool());

TEST_P(PeerJoinTest, AJoinRestoresTheBlocks) {
  StateEngine engine(1, GetParam());
  ASSERT_NO_FATAL_FAILURE(StartFirst(engine));
  second.Start();
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  EXPECT_LT(second.Worker().stream.replayed, kHistory);
  EXPECT_EQ(second.Worker().stream.resets, 0u);
  EXPECT_EQ(second.Blocks(), first.Blocks());
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"complete\"}"), "1");
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers"), "1");
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "1");
  EXPECT_EQ(second.lines.With({"source_restored source=engine by=peer"}).size(), 1u);
  EXPECT_EQ(second.lines.With({"info peer_joined source=" + first.url(), "workers=1"}).size(), 1u);
  EXPECT_TRUE(Eventually([&] { return first.Metric("kvcast_state_sends_total") == "1"; }));
  EXPECT_EQ(first.Metric("kvcast_state_send_errors_total"), "0");
  EXPECT_TRUE(Eventually([&] { return !first.lines.With({"state_sent"}).empty(); }));
  for (int turn = 0; turn < 20; ++turn) {
    engine.Run(2);
    ASSERT_NO_FATAL_FAILURE(first.ExpectExact(engine, 6));
    ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine, 6));
  }
  EXPECT_EQ(second.Blocks(), first.Blocks());
}

// The state of the first router is older than the latest batches of the engine.
TEST_P(PeerJoinTest, MissedBatchesAreReplayed) {
  StateEngine engine(2, GetParam());
  ASSERT_NO_FATAL_FAILURE(StartFirst(engine, 40));
  const std::string state = State();
  engine.Run(25);
  AnswerWith(state);
  second.Start();
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "1");
  EXPECT_EQ(second.Worker().stream.resets, 0u);
}

TEST_P(PeerJoinTest, AnEngineThatRestartedLosesItsState) {
  auto engine = std::make_unique<StateEngine>(3, GetParam());
  ASSERT_NO_FATAL_FAILURE(StartFirst(*engine, 40));
  const std::string state = State();
  engine = engine->Restart(4);
  engine->Run(60);
  AnswerWith(state);
  second.Start();
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(*engine));
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "1");
  EXPECT_EQ(second.Worker().stream.resets, 1u);
}

// The engine does not answer, so the second router does not use the state. A third router can still
// take this state from the second router.
TEST_P(PeerJoinTest, AStateWithoutProofHasNoWeight) {
  auto engine = std::make_unique<StateEngine>(5, GetParam());
  ASSERT_NO_FATAL_FAILURE(StartFirst(*engine, 40));
  engine->publisher.reset();
  second.Start();
  EXPECT_EQ(second.Worker().state, SourceState::kConnecting);
  const auto answers = second.service->Ask(engine->NextQuery());
  ASSERT_TRUE(answers.ok());
  EXPECT_EQ(answers->at(0).answer.weight, 0);
  EXPECT_FALSE(answers->at(0).answer.exact);
  Get(second.service->http_port(), "/readyz", 503);
  TestRouter third;
  third.options.sources = second.options.sources;
  third.options.peer.url = second.url();
  third.Start();
  EXPECT_EQ(third.Metric("kvcast_peer_join_workers_restored_total"), "1");
  EXPECT_EQ(third.Blocks(), first.Blocks());
}

class PeerFaultsTest : public PeerJoinTest {
 protected:
  static HttpOutcome Stall(const std::atomic<bool>& stopped) {
    EXPECT_TRUE(Eventually([&] { return stopped.load(); }));
    return {200, "ended"};
  }

  StateEngine engine{7};
};
INSTANTIATE_TEST_SUITE_P(Faults, PeerFaultsTest, ::testing::Values(true));

TEST_P(PeerFaultsTest, AnUnreachablePeerIsAColdStart) {
  StartFirst(engine);
  second.options.peer.url = "http://127.0.0.1:1";  // no process listens at this port
  ExpectColdStart(engine, "unreachable", "error=");
}

TEST_P(PeerFaultsTest, TheTokenNeedsTheRoleAdmin) {
  first.options.http.token_file =
      folder.Write("tokens", "query q\nroute r\nobserve o\nadmin a-token\n");
  StartFirst(engine);
  ExpectColdStart(engine, "credentials", "a valid bearer token is needed");
  for (const char* token : {"wrong", "o", "r", "q"}) {
    second.options.peer.token_file = folder.Write("token", std::string(token) + "\n");
    second.Start();
    EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"credentials\"}"), "1") << token;
  }
  second.options.peer.token_file = folder.Write("token", "a-token\n", 0644);
  second.Start();
  EXPECT_EQ(second.lines.With({"peer_join_failed", "other users can access it"}).size(), 1u);
  second.options.peer.token_file = folder.File("absent");
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"credentials\"}"), "1");
  second.options.peer.token_file = folder.Write("token", "a-token\n");
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"complete\"}"), "1");
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  for (const std::string& line : second.lines.lines()) {
    EXPECT_EQ(line.find("a-token"), std::string::npos) << line;
  }
}

TEST_P(PeerFaultsTest, OnlyTheAdminListenerServesTheState) {
  StartFirst(engine);
  Get(first.service->http_port(), kStatePath, 404);
  second.options.peer.url = "http://127.0.0.1:" + std::to_string(first.service->http_port());
  ExpectColdStart(engine, "not_served", "status 404: no such path");
  first.options.admin_http.reset();
  first.Start();
  Get(first.service->http_port(), kStatePath, 404);
}

TEST_P(PeerFaultsTest, AnotherVersionIsRefused) {
  StartFirst(engine);
  std::string state = State();
  state[8] = 9;
  AnswerWith(state);
  ExpectColdStart(engine, "version", "another version or byte order");
}

TEST_P(PeerFaultsTest, ADamagedStateIsRefused) {
  StartFirst(engine);
  std::string state = State();
  state[state.size() / 2] ^= 1;
  AnswerWith(state);
  ExpectColdStart(engine, "damaged", "the state is damaged");
}

// A stream with a correct checksum can contain bytes that are not a saved state.
TEST_P(PeerFaultsTest, AShardThatIsNoStateIsRefused) {
  StartFirst(engine);
  StateStreamWriter writer;
  std::string state = writer.Begin({.version = "1", .secret = 5, .shards = 1});
  state += writer.Part(std::string(500, 'x'));
  state += writer.EndShard();
  state += writer.End();
  AnswerWith(state);
  ExpectColdStart(engine, "damaged", "shard 0: not a saved state of kvcast");
}

TEST_P(PeerFaultsTest, APeerThatStopsInTheMiddleIsAColdStart) {
  StartFirst(engine);
  const std::string state = State();
  for (const size_t size : {size_t{0}, size_t{30}, state.size() / 2, state.size() - 1}) {
    for (const char* error : {"", "transfer closed with outstanding read data remaining"}) {
      Answer([=](const HttpGet& get, const auto&) {
        (void)get.on_bytes(200, state.substr(0, size));
        return HttpOutcome{200, error};
      });
      second.Start();
      EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"damaged\"}"), "1") << size << error;
      EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "0");
    }
  }
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
}

TEST_P(PeerFaultsTest, APeerThatStallsIsGivenUp) {
  StartFirst(engine);
  const std::string state = State();
  second.options.peer.stall_ms = 100;
  Answer([state](const HttpGet& get, const std::atomic<bool>& stopped) {
    (void)get.on_bytes(200, state.substr(0, state.size() / 2));
    return Stall(stopped);
  });
  ExpectColdStart(engine, "timeout", "sends no bytes");
}

TEST_P(PeerFaultsTest, AJoinEndsInTime) {
  StartFirst(engine);
  const std::string state = State();
  second.options.peer.timeout_ms = 100;
  Answer([state](const HttpGet& get, const std::atomic<bool>& stopped) {
    const int64_t until_ms = SteadyMs() + get.limit_ms;
    EXPECT_LE(get.limit_ms, 100);
    EXPECT_TRUE(Eventually([&] { return stopped || SteadyMs() >= until_ms; }));
    return HttpOutcome{200, "Operation timed out"};
  });
  ExpectColdStart(engine, "timeout", "not complete in time");
}

TEST_P(PeerFaultsTest, AProcessThatMustEndStopsTheJoin) {
  StartFirst(engine);
  second.options.peer.stopping = [] { return true; };
  Answer([](const HttpGet&, const std::atomic<bool>& stopped) { return Stall(stopped); });
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"stopped\"}"), "1");
}

TEST_P(PeerFaultsTest, ABusyPeerIsAskedAgain) {
  StartFirst(engine);
  const std::string state = State();
  const auto asked = std::make_shared<std::atomic<int>>(0);
  Answer([=](const HttpGet& get, const auto&) {
    const bool busy = ++*asked < 3;
    (void)get.on_bytes(busy ? 503 : 200, busy ? R"({"error":"busy"})" : state);
    return HttpOutcome{busy ? 503 : 200, ""};
  });
  second.Start();
  EXPECT_EQ(*asked, 3);
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"complete\"}"), "1");
  AnswerWith(R"({"error":"another router"})", 503);
  second.options.peer.timeout_ms = 300;
  ExpectColdStart(engine, "busy", "status 503: another router");
}

TEST_P(PeerFaultsTest, OtherAnswersGiveTheReasonBadAnswer) {
  StartFirst(engine);
  AnswerWith("<html>", 500);
  ExpectColdStart(engine, "bad_answer", "status 500");
  AnswerWith(std::string(100'000, 'x'), 302);
  ExpectColdStart(engine, "bad_answer", "status 302");
}

TEST_P(PeerFaultsTest, AWrongUrlIsAnError) {
  for (const char* url : {"127.0.0.1:1", "ftp://127.0.0.1", "http://10.0.0.1:80", "https://"}) {
    second.options.peer.url = url;
    const auto started = RouterService::Start(second.options);
    ASSERT_FALSE(started.ok()) << url;
    EXPECT_EQ(started.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(started.status().message().starts_with("peer: ")) << started.status().message();
  }
  second.options.peer.url = "http://127.0.0.1:1";
  second.options.make_client = nullptr;
  EXPECT_EQ(RouterService::Start(second.options).status().code(), StatusCode::kInvalidArgument);
}

// A router without saved states takes the secret of the other router, and keeps it.
TEST_P(PeerFaultsTest, ANewFolderGetsTheSecretOfThePeer) {
  StartFirst(engine);
  second.options.state.folder = folder.File("second");
  second.Start();
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "1");
  second.options.peer.url = "";
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_state_workers_restored_total"), "1");
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  EXPECT_LT(second.Worker().stream.replayed, kHistory);
  // Both routers have the same secret, so the second router uses the state of the first router.
  second.options.peer.url = first.url();
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "1");
  EXPECT_EQ(second.Metric("kvcast_state_workers_restored_total"), "0");
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
}

TEST_P(PeerFaultsTest, SavedStatesOfAnotherSecretAreKept) {
  StartFirst(engine);
  const std::string url = second.options.peer.url;
  second.options.state.folder = folder.File("second");
  second.options.peer.url = "";
  second.Start();
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  second.options.peer.url = url;
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"other_secret\"}"), "1");
  EXPECT_EQ(second.Metric("kvcast_state_workers_restored_total"), "1");
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "0");
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  EXPECT_LT(second.Worker().stream.replayed, kHistory);
}

// After a failed join, the router uses its saved state.
TEST_P(PeerFaultsTest, AfterAFailedJoinTheSavedStateIsUsed) {
  StartFirst(engine);
  second.options.state.folder = folder.File("second");
  second.Start();
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  first.service.reset();
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_state{state=\"unreachable\"}"), "1");
  EXPECT_EQ(second.Metric("kvcast_state_workers_restored_total"), "1");
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
  EXPECT_LT(second.Worker().stream.replayed, kHistory);
}

// A worker with another registration may have other blocks.
TEST_P(PeerFaultsTest, AnotherRegistrationIsAColdStart) {
  StartFirst(engine);
  second.options.sources[0].model = "another";
  second.Start();
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers"), "1");
  EXPECT_EQ(second.Metric("kvcast_peer_join_workers_restored_total"), "0");
  ASSERT_NO_FATAL_FAILURE(second.ExpectExact(engine));
}

// No source claims the state of the other router, so the saved state must stay in the folder.
TEST_P(PeerFaultsTest, ASavedStateThatAPeerReplacedIsKept) {
  StartFirst(engine);
  first.service.reset();
  const auto opened = StateFolder::Open(folder.File("first"));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  SavedWorkers saved([](const WorkerRegistration&) { return std::string("another"); });
  saved.Load(*opened);
  for (const std::string& name : opened->Names(".state")) {
    auto file = StateFile::Open(opened->PathOf(name), SecretCheck(opened->secret()));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    saved.AddFromPeer(std::make_shared<const StateFile>(std::move(file).value()));
  }
  EXPECT_EQ(saved.KeepFiles(*opened).size(), 1u);
  EXPECT_EQ(saved.DropPeer(), 1u);
  EXPECT_FALSE(saved.empty());
  EXPECT_EQ(saved.KeepFiles(*opened).size(), 1u);
  saved.DropFolder();
  EXPECT_TRUE(saved.empty());
}

// The memory of states that no worker has claimed is freed.
TEST_P(PeerFaultsTest, StatesOfUnknownWorkersAreDropped) {
  StartFirst(engine);
  StateStreamReader reader([](const StateStreamHead&) { return Status(); });
  ASSERT_TRUE(reader.Add(State()).ok());
  SavedWorkers saved([](const WorkerRegistration&) { return std::string("another"); });
  EXPECT_TRUE(saved.empty());
  const uint64_t check = SecretCheck(StateFolder::Open(folder.File("copy"))->secret());
  size_t workers = 0;
  for (const Descriptor& shard : reader.Take()) {
    EXPECT_FALSE(StateFile::Read(shard, "shard", check).ok()) << "another secret";
    first.service.reset();
    auto file = StateFile::Read(shard, "shard",
                                SecretCheck(StateFolder::Open(folder.File("first"))->secret()));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    workers += file->workers().size();
    saved.AddFromPeer(std::make_shared<const StateFile>(std::move(file).value()));
  }
  EXPECT_EQ(workers, 1u);
  EXPECT_FALSE(saved.empty());
  EXPECT_EQ(saved.DropPeer(), 1u);
  EXPECT_TRUE(saved.empty());
}

}  // namespace
}  // namespace kvcast::router
