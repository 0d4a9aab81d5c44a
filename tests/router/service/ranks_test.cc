// Each data-parallel rank is a worker. The ranks have ports offset by their number, or share one
// socket. On a shared socket, the batches name the rank.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <thread>

#include "apps/conformance/frames/zmtp_peer.h"
#include "kvcast/stream/publisher.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "tests/router/service/peer_engine.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using testing::Batch;
using testing::Full;
using testing::Hashes;
using testing::kPeerBlock;
using testing::PeerEngine;
using testing::PeerFull;
using testing::Registered;
using testing::StoreFull;

EventBatch OfRank(std::optional<int64_t> rank, EventBatch batch) {
  batch.ts = 1'790'000'000;
  batch.data_parallel_rank = rank;
  return batch;
}

struct TaggedSource : ::testing::Test {
  TaggedSource() {
    WorkerRegistration config;
    config.worker = Registered({Full()});
    config.data_parallel_rank = 1;
    config.rank_by_tag = true;
    source = WorkerIngest::Create(WorkerId(3), config, index).value();
  }
  BatchResult Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    return source->OnBatch(payload, Seq(seq++));
  }
  int64_t Reusable() const { return index.Match(Hashes(1, 4), 16, 65)[0].gpu_tokens; }

  PrefixIndex index;
  std::unique_ptr<WorkerIngest> source;
  uint64_t seq = 0;
};

TEST_F(TaggedSource, TakesItsOwnBatchesAlone) {
  EXPECT_EQ(Send(OfRank(0, Batch(StoreFull(Hashes(1, 4), 0)))), BatchResult::kApplied);
  EXPECT_EQ(Reusable(), 0);
  EXPECT_EQ(Send(OfRank(1, Batch(StoreFull(Hashes(1, 2), 0)))), BatchResult::kApplied);
  EXPECT_EQ(Reusable(), 32);
  EXPECT_EQ(Send(OfRank(0, Batch(AllBlocksCleared()))), BatchResult::kApplied);
  EXPECT_EQ(Reusable(), 32) << "the clear is for another rank's cache";
  EXPECT_EQ(source->counters().other_rank_batches, 2u);
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSynced);
}

TEST_F(TaggedSource, DoubtsBatchesWithoutARank) {
  EXPECT_EQ(Send(OfRank(std::nullopt, {})), BatchResult::kApplied) << "a heartbeat";
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSynced);
  EXPECT_EQ(Send(OfRank(std::nullopt, Batch(StoreFull(Hashes(1, 4), 0)))), BatchResult::kDoubtful);
  EXPECT_EQ(Reusable(), 0);
  EXPECT_EQ(source->counters().untagged_batches, 1u);
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSuspect);
  EXPECT_FALSE(source->lacks_host_blocks());
  EXPECT_EQ(Send(OfRank(1, Batch(AllBlocksCleared()))), BatchResult::kEmptied);
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSynced);
  EXPECT_TRUE(source->lacks_host_blocks()) << "the batch without a rank may have stored some";
}

// A relay shows such a batch as a gap.
TEST_F(TaggedSource, TellsItsObserverThatEventsAreLacking) {
  std::vector<bool> lacking;
  source->set_observer(
      [&lacking](const AppliedBatch& applied) { lacking.push_back(applied.lacks_events); });
  Send(OfRank(1, Batch(StoreFull(Hashes(1, 4), 0))));
  Send(OfRank(0, Batch(StoreFull(Hashes(1, 4), 0))));
  Send(OfRank(std::nullopt, Batch(StoreFull(Hashes(5, 4), 4))));
  EXPECT_EQ(lacking, (std::vector<bool>{false, false, true}));
}

struct RanksTest : ::testing::Test {
  void Start(const WorkerRegistration& source) {
    RouterOptions options;
    options.sources = {source};
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  Json Ask(const std::vector<TokenId>& prompt) const {
    httplib::Client client("127.0.0.1", service->http_port());
    const auto reply =
        client.Post("/v1/query", Json{{"tokens", prompt}}.dump(), "application/json");
    return reply && reply->status == 200 ? Json::parse(reply->body).at("workers") : Json();
  }
  // The counter of the worker `engine-dp1`.
  int64_t Counter(const std::string& name) const {
    httplib::Client client("127.0.0.1", service->http_port());
    const std::string line = "\n" + name + "{worker=\"engine-dp1\"} ";
    const std::string text = client.Get("/metrics")->body;
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + line.size()));
  }
  Json AskUntil(const std::vector<TokenId>& prompt, const std::function<bool(const Json&)>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    Json workers = Ask(prompt);
    while (!done(workers) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      workers = Ask(prompt);
    }
    EXPECT_TRUE(done(workers)) << workers.dump();
    return workers;
  }

  // Runs two engines, one per rank, and compares each answer with the lookups of both engines.
  // `next` returns the next sequence number of each rank's stream.
  void ExpectBothExact(const std::function<void(int64_t rank, EventBatch)>& publish,
                       const std::function<std::pair<uint64_t, uint64_t>()>& next) {
    PeerEngine engines[] = {{{PeerFull()}, 64, 1}, {{PeerFull()}, 64, 2}};
    int64_t hits = 0;
    int64_t different = 0;
    for (int turn = 0; turn < 60; ++turn) {
      const auto prompt = engines[0].NextPrompt();
      for (int64_t rank = 0; rank < 2; ++rank) {
        if (turn % 3 == rank) continue;  // this engine skips the prompt, so the caches differ
        EventBatch batch;
        batch.ts = turn;
        batch.events = engines[rank].Run(prompt);
        publish(rank, std::move(batch));
      }
      const auto asked = engines[0].NextPrompt();
      const int64_t expected[] = {engines[0].Lookup(asked), engines[1].Lookup(asked)};
      const Json workers = AskUntil(asked, [&](const Json& w) {
        const auto [zero, one] = next();
        return w.is_array() && w.at(0).at("next_seq") >= zero && w.at(1).at("next_seq") >= one &&
               w.at(0).at("state") == "synced" && w.at(1).at("state") == "synced";
      });
      for (size_t rank = 0; rank < 2; ++rank) {
        ASSERT_EQ(workers[rank].at("reusable_tokens"), expected[rank]) << turn << workers.dump();
        hits += expected[rank] > 0 ? 1 : 0;
      }
      different += expected[0] != expected[1] ? 1 : 0;
    }
    EXPECT_GT(hits, 20);
    EXPECT_GT(different, 5) << "the ranks' caches differ";
  }

  std::unique_ptr<RouterService> service;
};

PublisherConfig OnFreePorts() {
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  return config;
}

WorkerRegistration OfTwoRanks(const std::string& endpoint, const std::string& replay_endpoint) {
  WorkerRegistration source;
  source.worker.name = "engine";
  source.worker.groups = {PeerFull()};
  source.endpoint = endpoint;
  source.replay_endpoint = replay_endpoint;
  source.data_parallel_size = 2;
  return source;
}

// SGLang's DP attention sends the rank in the same field of a batch as vLLM.
TEST_F(RanksTest, OnOneSocketByTheTagOfTheBatch) {
  for (const Dialect dialect : {kDefaultDialect, Dialect::kSglang3, Dialect::kSglang5}) {
    PublisherConfig config = OnFreePorts();
    config.dialect = dialect;
    const auto publisher = Publisher::Create(config).value();
    WorkerRegistration source = OfTwoRanks(publisher->endpoint(), publisher->replay_endpoint());
    source.rank_by_tag = true;
    Start(source);
    ExpectBothExact(
        [&](int64_t rank, EventBatch batch) {
          batch.data_parallel_rank = rank;
          ASSERT_TRUE(publisher->Publish(std::move(batch)).ok());
        },
        [&] {
          const uint64_t seq = publisher->next_seq().value;
          return std::pair(seq, seq);
        });
    EXPECT_EQ(Ask({1, 2})[1].at("name"), "engine-dp1");
    service.reset();
  }
}

TEST_F(RanksTest, OnPortsOffsetByTheRank) {
  std::unique_ptr<Publisher> ranks[2];
  // The port after a free port may be in use, so the loop tries again.
  while (ranks[1] == nullptr) {
    ranks[0] = Publisher::Create(OnFreePorts()).value();
    PublisherConfig second;
    second.endpoint = ranks[0]->endpoint();
    second.replay_endpoint = ranks[0]->replay_endpoint();
    second.data_parallel_rank = 1;
    if (auto made = Publisher::Create(second); made.ok()) ranks[1] = std::move(made).value();
  }
  Start(OfTwoRanks(ranks[0]->endpoint(), ranks[0]->replay_endpoint()));
  ExpectBothExact(
      [&](int64_t rank, EventBatch batch) {
        ASSERT_TRUE(ranks[rank]->Publish(std::move(batch)).ok());
      },
      [&] { return std::pair(ranks[0]->next_seq().value, ranks[1]->next_seq().value); });
}

// The publisher's snapshot contains the blocks of all ranks, and does not name the rank of a block.
// Therefore a source of one rank requests no snapshot.
TEST_F(RanksTest, OnOneSocketALateReaderLacksBlocks) {
  PublisherConfig config = OnFreePorts();
  config.ring_batches = 2;
  const auto publisher = Publisher::Create(config).value();
  // The service must connect after the publisher has sent all batches. So `reader` receives all
  // batches before the service starts.
  auto reader = tools::ZmtpPeer::Connect(publisher->endpoint());
  ASSERT_TRUE(reader.ok() && reader->Handshake("SUB").ok());
  ASSERT_TRUE(reader->Subscribe("").ok() && reader->Fence().ok());
  for (int i = 0; i < 20; ++i) {
    BlockStored stored = StoreFull(Hashes(100 + i, 1), 0, kPeerBlock);
    stored.token_ids = std::vector<TokenId>(kPeerBlock, i);
    ASSERT_TRUE(publisher->Publish(OfRank(i % 2, Batch(stored))).ok());
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(reader->ReceiveMessage().ok());
  WorkerRegistration source = OfTwoRanks(publisher->endpoint(), publisher->replay_endpoint());
  source.rank_by_tag = true;
  Start(source);
  const std::vector<TokenId> last(kPeerBlock + 1, 19);
  const Json workers =
      AskUntil(last, [](const Json& w) { return w.at(1).at("reusable_tokens") == kPeerBlock; });
  EXPECT_NE(workers[1].at("state"), "synced") << workers.dump();
  EXPECT_EQ(workers[1].at("exact"), false);
  EXPECT_EQ(workers[0].at("reusable_tokens"), 0) << "the other rank holds these blocks";
  // The source requests no snapshot, and keeps its blocks.
  const uint64_t end = publisher->next_seq().value + 20;
  while (publisher->next_seq().value < end) {
    const uint64_t seq = publisher->next_seq().value;
    ASSERT_TRUE(publisher->Publish(OfRank(0, EventBatch())).ok());
    AskUntil(last, [seq](const Json& w) { return w.at(1).at("next_seq") > seq; });
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(Counter("kvcast_source_snapshot_failures_total"), 0);
  EXPECT_EQ(Ask(last)[1].at("reusable_tokens"), kPeerBlock);
}

}  // namespace
}  // namespace kvcast::router
