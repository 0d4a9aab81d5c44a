// Workers join and leave the fleet. After a worker has left, the index holds none of its blocks.
// Workers of different shards do not wait for each other.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/fleet.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "tests/support/index_events.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::StoreFull;
using stream::Eventually;

// True if the worker has applied batch 0 and knows the publisher's epoch. A source that receives
// batches before it knows the epoch drops their blocks and begins again at batch 0.
bool HasOneBatch(const Fleet& fleet, const char* name) {
  const auto worker = fleet.view()->Find(name);
  return fleet.State(*worker) == SourceState::kSynced && fleet.stream(worker->id).next_seq == 1;
}

struct FleetTest : ::testing::Test {
  FleetTest() {
    FleetObserver observer;
    observer.on_removed = [this](const FleetWorker&) { ++removed; };
    fleet = Fleet::Create({}, index, std::move(observer)).value();
    PublisherConfig config;
    config.endpoint = "tcp://127.0.0.1:0";
    config.replay_endpoint = "tcp://127.0.0.1:0";
    publisher = Publisher::Create(config).value();
  }
  WorkerRegistration Source(const std::string& name, const std::string& model = "m") const {
    WorkerRegistration source;
    source.worker = Registered({});
    source.worker.name = name;
    source.model = model;
    source.endpoint = publisher->endpoint();
    source.replay_endpoint = publisher->replay_endpoint();
    return source;
  }
  uint64_t Residencies(uint32_t worker) const {
    return index.counters(WorkerId(worker)).residencies;
  }

  PrefixIndex index;
  std::atomic<int> removed{0};
  std::unique_ptr<Publisher> publisher;
  std::unique_ptr<Fleet> fleet;
};

TEST_F(FleetTest, ARemovedWorkerHoldsNothingAndComesBackWithANewId) {
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(Hashes(1, 4), 0))).ok());
  ASSERT_TRUE(Eventually([this] { return HasOneBatch(*fleet, "a"); }));
  EXPECT_EQ(Residencies(0), 4u);
  const FleetView before = fleet->view();
  ASSERT_TRUE(fleet->Remove("a").ok());
  EXPECT_EQ(removed, 1);
  EXPECT_EQ(Residencies(0), 0u);
  EXPECT_EQ(fleet->view()->workers.size(), 0u);
  EXPECT_EQ(before->workers.size(), 1u) << "a query keeps the list that it began with";
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  ASSERT_TRUE(Eventually([this] { return HasOneBatch(*fleet, "a"); }));
  EXPECT_EQ(Residencies(1), 4u);
  EXPECT_EQ(Residencies(0), 0u);
}

TEST_F(FleetTest, NamesAreUnique) {
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  const Status again = fleet->Add(Source("a"));
  EXPECT_EQ(again.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(again.message(), "a worker named a exists already");
  EXPECT_EQ(fleet->Remove("b").code(), StatusCode::kNotFound);
}

// A list of sources knows the id of its worker. A client may replace this worker at any time.
TEST_F(FleetTest, AnOldIdDoesNotRemoveANewWorkerOfTheSameName) {
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  const WorkerId old = fleet->view()->Find("a")->id;
  ASSERT_TRUE(fleet->Remove("a", old).ok());
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  EXPECT_EQ(fleet->Remove("a", old).code(), StatusCode::kNotFound);
  EXPECT_EQ(removed, 1);
  const auto worker = fleet->view()->Find("a");
  ASSERT_NE(worker, nullptr);
  EXPECT_NE(worker->id, old);
  EXPECT_TRUE(fleet->Remove("a", worker->id).ok());
}

TEST_F(FleetTest, ASourceThatCannotBeFollowedLeavesNothing) {
  WorkerRegistration bad = Source("a");
  bad.endpoint = "nonsense";
  const Status status = fleet->Add(bad);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().substr(0, 3), "a: ");
  EXPECT_EQ(fleet->view()->workers.size(), 0u);
  EXPECT_TRUE(fleet->Add(Source("a")).ok());
}

// The fleet adds a worker to its view before it follows the source. So queries may have used the
// worker although its source cannot be followed.
TEST_F(FleetTest, TheObserverLearnsThatASourceCannotBeFollowed) {
  WorkerRegistration bad = Source("a");
  bad.endpoint = "nonsense";
  EXPECT_FALSE(fleet->Add(bad).ok());
  EXPECT_EQ(removed, 1);
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  EXPECT_FALSE(fleet->Add(Source("a")).ok());
  EXPECT_EQ(removed, 1) << "the second worker was in no view";
  ASSERT_TRUE(fleet->Remove("a").ok());
  EXPECT_EQ(removed, 2);
}

// The name of the second rank is taken, so the first attempt fails after it has followed a rank.
TEST_F(FleetTest, ASavedStateIsConsumedWhenAllRanksAreFollowed) {
  std::vector<std::string> restored;
  std::vector<std::string> followed;
  const RestoreWorker restore = [&](const WorkerRegistration& source, WorkerIngest&) {
    const std::string name = source.worker.name;
    restored.push_back(name);
    return RestoredWorker{{}, [&followed, name] { followed.push_back(name); }};
  };
  fleet = Fleet::Create({}, index, {}, {}, restore).value();
  WorkerRegistration ranks = Source("a");
  ranks.data_parallel_size = 2;
  ranks.rank_by_tag = true;
  ASSERT_TRUE(fleet->Add(Source("a-dp1")).ok());
  EXPECT_EQ(followed, std::vector<std::string>{"a-dp1"});
  EXPECT_FALSE(fleet->Add(ranks).ok());
  EXPECT_EQ(restored, (std::vector<std::string>{"a-dp1", "a-dp0"}));
  EXPECT_EQ(followed, std::vector<std::string>{"a-dp1"});
  ASSERT_TRUE(fleet->Remove("a-dp1").ok());
  ASSERT_TRUE(fleet->Add(ranks).ok());
  EXPECT_EQ(followed, (std::vector<std::string>{"a-dp1", "a-dp0", "a-dp1"}));
}

// The worker of a log follows the endpoints of the log's reader. The reader lives as long as the
// worker.
TEST_F(FleetTest, ALogIsReadWhileItsWorkerIsFollowed) {
  std::vector<std::string> opened;
  std::weak_ptr<int> reader;
  const auto open_log = [&](const std::string& name,
                            const OpenLogOptions& options) -> Result<OpenLog> {
    opened.push_back(name);
    EXPECT_EQ(options.max_blocks, 1000u) << "a copy has the bound of its source";
    auto made = std::make_shared<int>(0);
    reader = made;
    return OpenLog{publisher->endpoint(), publisher->replay_endpoint(), std::move(made),
                   [] { return event_log::BridgeStatus{.rewinds = 3}; }};
  };
  fleet = Fleet::Create({}, index, {}, {}, {}, open_log).value();
  WorkerRegistration source = Source("a");
  source.endpoint = "nats:org/model/engine-0";
  source.replay_endpoint.clear();
  source.max_residencies = 1000;
  ASSERT_TRUE(fleet->Add(source).ok());
  EXPECT_EQ(opened, std::vector<std::string>{"org/model/engine-0"});
  EXPECT_EQ(fleet->view()->Find("a")->config.endpoint, "nats:org/model/engine-0");
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(Hashes(1, 4), 0))).ok());
  ASSERT_TRUE(Eventually([this] { return HasOneBatch(*fleet, "a"); }));
  EXPECT_FALSE(reader.expired());
  const WorkerId worker = fleet->view()->Find("a")->id;
  EXPECT_EQ(fleet->log(worker).value().rewinds, 3u);
  EXPECT_FALSE(index.Digests(WorkerId(0)).empty()) << "a snapshot needs digests";
  ASSERT_TRUE(fleet->Remove("a").ok());
  EXPECT_TRUE(reader.expired());
  EXPECT_FALSE(fleet->log(worker).has_value());
}

TEST_F(FleetTest, ALogThatCannotBeReadLeavesNothing) {
  WorkerRegistration source = Source("a");
  source.endpoint = "nats:model/engine";
  EXPECT_EQ(fleet->Add(source).message(), "a: nats:model/engine: the router reads no logs");
  std::weak_ptr<int> reader;
  fleet = Fleet::Create({}, index, {}, {}, {},
                        [&](const std::string& name, const OpenLogOptions&) -> Result<OpenLog> {
                          if (name != "bad/endpoint")
                            return Status(StatusCode::kInvalidArgument, "no such log");
                          auto made = std::make_shared<int>(0);
                          reader = made;
                          return OpenLog{"nonsense", "", std::move(made)};
                        })
              .value();
  EXPECT_EQ(fleet->Add(source).message(), "a: no such log");
  source.endpoint = "nats:bad/endpoint";
  EXPECT_FALSE(fleet->Add(source).ok());
  EXPECT_TRUE(reader.expired());
  EXPECT_EQ(fleet->view()->workers.size(), 0u);
}

// The status of a turn is published after the turn.
TEST_F(FleetTest, TheStatusShowsWhetherItIsOlderThanTheBlocks) {
  std::atomic<const Fleet*> following{nullptr};
  std::atomic<bool> older{false};
  const auto compare = [&](const FleetWorker& worker) {
    const Fleet& now = *following.load();
    older = now.stream(worker.id).replacements < worker.source->replacements();
  };
  FleetObserver observer;
  observer.on_snapshot = compare;
  observer.on_dropped = [&](const FleetWorker& worker, ResetReason, uint64_t) { compare(worker); };
  const auto observed = Fleet::Create({}, index, std::move(observer)).value();
  following = observed.get();
  ASSERT_TRUE(observed->Add(Source("a")).ok());
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(Hashes(1, 4), 0))).ok());
  ASSERT_TRUE(Eventually([&] { return HasOneBatch(*observed, "a"); }));
  const auto worker = observed->view()->Find("a");
  const uint64_t before = worker->source->replacements();
  observed->Contradict(worker->id);
  EXPECT_TRUE(Eventually([&] {
    const uint64_t published = observed->stream(worker->id).replacements;
    return published > before && published == worker->source->replacements();
  }));
  EXPECT_TRUE(older);
  ASSERT_TRUE(observed->Remove("a").ok());
}

TEST_F(FleetTest, TheStatusOfAFeedShowsWhetherItIsOlderThanTheBlocks) {
  WorkerRegistration source = Source("a");
  source.endpoint = kPushEndpoint;
  ASSERT_TRUE(fleet->Add(source).ok());
  const auto worker = fleet->view()->Find("a");
  EXPECT_EQ(fleet->stream(worker->id).replacements, 0u);
  fleet->Contradict(worker->id);
  EXPECT_EQ(worker->source->replacements(), 1u);
  EXPECT_EQ(fleet->stream(worker->id).replacements, 1u);
}

TEST_F(FleetTest, SourcesAreChosenByModelAndRoutingGroup) {
  WorkerRegistration other = Source("c", "n");
  other.routing_group = "blue";
  ASSERT_TRUE(fleet->Add(Source("a")).ok());
  ASSERT_TRUE(fleet->Add(Source("b")).ok());
  ASSERT_TRUE(fleet->Add(other).ok());
  const FleetView view = fleet->view();
  EXPECT_EQ(view->Sources("", "").size(), 3u);
  EXPECT_EQ(view->Sources("m", "").size(), 2u);
  EXPECT_EQ(view->Sources("m", "blue").size(), 0u);
  EXPECT_EQ(view->Sources("", "blue").at(0)->name(), "c");
}

// The thread of worker 0 is busy with its first batch until worker 1 has applied a batch.
TEST(FleetThreads, AWorkerDoesNotWaitForTheWorkersOfAnotherShard) {
  PrefixIndex index(ContentKeys::OfProcess(), 2);
  std::atomic<bool> waited{false};
  std::counting_semaphore<> first(0);
  std::counting_semaphore<> second(0);
  FleetObserver observer;
  observer.on_applied = [&](const FleetWorker& worker, const AppliedBatch&) {
    if (worker.id.value == 1) return second.release();
    if (waited.exchange(true)) return;
    EXPECT_TRUE(second.try_acquire_for(std::chrono::minutes(1)));
    first.release();
  };
  const auto fleet = Fleet::Create({}, index, std::move(observer)).value();
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  std::vector<std::unique_ptr<Publisher>> publishers;
  for (const char* name : {"a", "b"}) {
    publishers.push_back(Publisher::Create(config).value());
    WorkerRegistration source;
    source.worker = Registered({});
    source.worker.name = name;
    source.endpoint = publishers.back()->endpoint();
    source.replay_endpoint = publishers.back()->replay_endpoint();
    ASSERT_TRUE(fleet->Add(source).ok());
    ASSERT_TRUE(publishers.back()->Publish(Batch(StoreFull(Hashes(1, 4), 0))).ok());
  }
  first.acquire();
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(Eventually([&] { return HasOneBatch(*fleet, name); }));
  }
  EXPECT_EQ(index.counters(WorkerId(0)).residencies, 4u);
  EXPECT_EQ(index.counters(WorkerId(1)).residencies, 4u);
  ASSERT_TRUE(fleet->Remove("a").ok());
  ASSERT_TRUE(fleet->Remove("b").ok());
  EXPECT_EQ(index.counters(WorkerId(1)).residencies, 0u);
}

}  // namespace
}  // namespace kvcast::router
