// Tests a relay that restarts between a worker and a follower (row F9 of tests/RELIABILITY.md).
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/stream_relay.h"
#include "kvcast/wire/wire.h"
#include "src/base/mutex.h"
#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

constexpr WorkerId kWorker{0};
constexpr uint64_t kBatches = 200;

// The epoch of a worker, and the number of a batch.
struct BatchId {
  uint64_t epoch = 0;
  uint64_t number = 0;
  bool operator==(const BatchId&) const = default;
};
void PrintTo(const BatchId& id, std::ostream* out) { *out << id.epoch << "." << id.number; }

class Worker {
 public:
  explicit Worker(uint64_t epoch, const PublisherConfig& config)
      : epoch_(epoch), publisher_(MakePublisher(config)) {}

  // Publishes batches up to `end`, exclusive. Each batch stores a block whose hash encodes the
  // epoch and the number.
  void PublishUpTo(uint64_t end) {
    while (publisher_->next_seq().value < end) {
      BlockStored stored;
      stored.block_hashes = {BlockHash(epoch_ << 32 | publisher_->next_seq().value)};
      stored.token_ids = {TokenId(1), TokenId(2)};
      stored.block_size = 2;
      stored.medium = "GPU";
      stored.group_idx = 0;
      EventBatch batch;
      batch.events.emplace_back(std::move(stored));
      EXPECT_TRUE(publisher_->Publish(std::move(batch)).ok());
    }
  }
  uint64_t next() const { return publisher_->next_seq().value; }
  SourceConfig source() const {
    return {kWorker, publisher_->endpoint(), publisher_->replay_endpoint(), ""};
  }

 private:
  const uint64_t epoch_;
  const std::unique_ptr<Publisher> publisher_;
};

// Records the batches since the last reset.
class Follower {
 public:
  Follower(const SourceConfig& source) {
    subscriber_ = Subscriber::Create({}).value();
    auto sink = std::make_shared<BatchSink>([this](Seq, Frame payload) { AddBatch(payload); },
                                            [this](ResetReason) { Clear(); });
    EXPECT_TRUE(subscriber_->Add(source, sink).ok());
  }
  std::vector<BatchId> batches() const {
    MutexLock lock(mutex_);
    return batches_;
  }
  // Returns true if the state had batches of two epochs at the same time.
  bool mixed() const {
    MutexLock lock(mutex_);
    return mixed_;
  }
  SourceStatus status() const { return subscriber_->status(kWorker); }
  bool Reaches(SourceState state, uint64_t next) const {
    return Eventually([&] { return status().state == state && status().next_seq == next; });
  }
  // The relay may repeat old sequence numbers, so the state may be cleared and learned again.
  ::testing::AssertionResult ReachesBatches(SourceState state,
                                            const std::vector<BatchId>& expected) const {
    if (Eventually([&] { return status().state == state && batches() == expected; })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << ::testing::PrintToString(batches());
  }

 private:
  void AddBatch(Frame payload) {
    EventBatch batch;
    DecodeCounts counts;
    ASSERT_TRUE(DecodeBatch(payload, {}, batch, counts).ok());
    MutexLock lock(mutex_);
    for (const Event& event : batch.events) {
      const uint64_t hash = std::get<BlockStored>(event).block_hashes[0].integer();
      batches_.push_back({hash >> 32, hash & UINT32_MAX});
      mixed_ |= batches_.front().epoch != batches_.back().epoch;
    }
  }
  void Clear() {
    MutexLock lock(mutex_);
    batches_.clear();
  }

  mutable Mutex mutex_;
  std::vector<BatchId> batches_ KV_GUARDED_BY(mutex_);
  bool mixed_ KV_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Subscriber> subscriber_;
};

std::vector<BatchId> BatchIds(uint64_t epoch, uint64_t end) {
  std::vector<BatchId> ids;
  for (uint64_t number = 0; number < end; ++number) ids.push_back({epoch, number});
  return ids;
}

class RelayRestart : public ::testing::TestWithParam<Dialect> {
 protected:
  PublisherConfig config() const {
    PublisherConfig config = TestPublisherConfig();
    config.dialect = GetParam();
    config.heartbeat_ms = 0;
    return config;
  }
  // A later relay has the endpoints of the first relay.
  void StartRelay(const Worker& worker) {
    StreamRelayConfig relay;
    relay.source = worker.source();
    relay.publisher = TestPublisherConfig();
    relay.publisher.heartbeat_ms = 0;  // a heartbeat takes a sequence number
    if (!source_.endpoint.empty()) {
      relay.publisher.endpoint = source_.endpoint;
      relay.publisher.replay_endpoint = source_.replay_endpoint;
    }
    // The ports may still be in use.
    ASSERT_TRUE(Eventually([&] {
      auto made = StreamRelay::Create(relay);
      if (made.ok()) relay_ = std::move(made).value();
      return made.ok();
    }));
    source_ = {kWorker, relay_->endpoint(), relay_->replay_endpoint(), ""};
    ASSERT_TRUE(Eventually([&] { return relay_->source().state == SourceState::kSynced; }));
  }
  void StopRelay() { relay_.reset(); }
  const SourceConfig& ThroughRelay() const { return source_; }

 private:
  std::unique_ptr<StreamRelay> relay_;
  SourceConfig source_;
};

TEST_P(RelayRestart, TheStateOfARunningWorkerIsCompleteAgain) {
  Worker worker(1, config());
  worker.PublishUpTo(kBatches);
  StartRelay(worker);
  const Follower follower(ThroughRelay());
  ASSERT_TRUE(follower.Reaches(SourceState::kSynced, kBatches));
  worker.PublishUpTo(2 * kBatches);
  ASSERT_TRUE(follower.Reaches(SourceState::kSynced, 2 * kBatches));

  StopRelay();
  worker.PublishUpTo(3 * kBatches);
  StartRelay(worker);
  const Stopwatch since;
  worker.PublishUpTo(4 * kBatches);
  EXPECT_TRUE(follower.ReachesBatches(SourceState::kSynced, BatchIds(1, 4 * kBatches)));
  Figure("F9", "synced after the relay's restart", since.seconds(), 5, "s");
}

TEST_P(RelayRestart, TheStateOfARestartedWorkerIsDropped) {
  PublisherConfig worker_config = config();
  auto first = std::make_unique<Worker>(1, worker_config);
  worker_config.endpoint = first->source().endpoint;
  worker_config.replay_endpoint = first->source().replay_endpoint;
  first->PublishUpTo(kBatches);
  StartRelay(*first);
  const Follower follower(ThroughRelay());
  ASSERT_TRUE(follower.Reaches(SourceState::kSynced, kBatches));

  StopRelay();
  first.reset();
  Worker second(2, worker_config);
  second.PublishUpTo(2 * kBatches);
  StartRelay(second);
  second.PublishUpTo(3 * kBatches);
  ASSERT_TRUE(Eventually([&] { return follower.status().resets > 0; }));
  EXPECT_TRUE(follower.ReachesBatches(SourceState::kSynced, BatchIds(2, 3 * kBatches)));
  EXPECT_FALSE(follower.mixed());
}

// The follower has no replay endpoint.
TEST_P(RelayRestart, WithoutReplayTheStateOfARestartedWorkerIsDropped) {
  PublisherConfig worker_config = config();
  auto first = std::make_unique<Worker>(1, worker_config);
  worker_config.endpoint = first->source().endpoint;
  worker_config.replay_endpoint = first->source().replay_endpoint;
  first->PublishUpTo(kBatches);
  StartRelay(*first);
  SourceConfig source = ThroughRelay();
  source.replay_endpoint.clear();
  const Follower follower(source);
  ASSERT_TRUE(Eventually([&] {
    first->PublishUpTo(first->next() + 1);
    return !follower.batches().empty();
  }));

  StopRelay();
  first.reset();
  Worker second(2, worker_config);
  second.PublishUpTo(2 * kBatches);
  StartRelay(second);
  ASSERT_TRUE(Eventually([&] {
    second.PublishUpTo(second.next() + 1);
    return follower.status().resets > 0 && !follower.batches().empty();
  }));
  for (const BatchId& id : follower.batches()) EXPECT_EQ(id.epoch, 2u);
}

INSTANTIATE_TEST_SUITE_P(Dialects, RelayRestart,
                         ::testing::Values(Dialect::kKvcast1, kDefaultDialect));

}  // namespace
}  // namespace kvcast::stream
