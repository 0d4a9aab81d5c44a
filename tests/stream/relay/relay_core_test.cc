// The rules of a relay, without sockets.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/relay/relay_core.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kvcast/wire/wire.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

// Records what the core does.
struct RelayCoreTest : ::testing::Test, RelayOutput {
  bool BeginEpoch() override {
    log.emplace_back("epoch");
    return begin_succeeds;
  }
  void PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) override {
    std::string text = payload.empty() ? "lost" : std::string(payload.begin(), payload.end());
    if (ts) text = "batch of " + std::to_string(static_cast<int>(*ts));
    log.push_back(std::move(text));
  }
  void SetSilent(bool silent) override { log.emplace_back(silent ? "silent" : "speaks"); }

  void Apply(uint64_t seq) {
    const Bytes payload = TestPayload(seq, 0);
    core.Apply(Seq(seq), payload);
  }
  Texts TakeLog() { return std::exchange(log, {}); }

  bool begin_succeeds = true;
  Texts log;
  RelayCore core{*this};
};

TEST_F(RelayCoreTest, BatchesAreSilentUntilTheStateIsKnown) {
  Apply(0);
  EXPECT_EQ(TakeLog(), (Texts{"0.0", "silent"}));
  core.NoteState(SourceState::kSynced);
  EXPECT_EQ(TakeLog(), Texts{"speaks"});
  Apply(1);
  EXPECT_EQ(TakeLog(), (Texts{"0.1", "speaks"}));
  core.NoteState(SourceState::kStale);
  EXPECT_EQ(TakeLog(), Texts{"silent"});
}

TEST_F(RelayCoreTest, ABatchKeepsItsTime) {
  EventBatch batch;
  batch.ts = 17;
  Bytes payload;
  ASSERT_TRUE(EncodeBatch(batch, Dialect::kVllm12, payload).ok());
  core.Apply(Seq(0), payload);
  EXPECT_EQ(TakeLog(), (Texts{"batch of 17", "silent"}));
}

TEST_F(RelayCoreTest, AFirstBatchThatIsNotNumberZeroFollowsALostBatch) {
  Apply(5);
  EXPECT_EQ(TakeLog(), (Texts{"lost", "0.5", "silent"}));
  EXPECT_EQ(core.counters().incomplete, 1u);
}

TEST_F(RelayCoreTest, ARestartBeginsACompleteEpoch) {
  Apply(0);
  TakeLog();
  core.Reset(ResetReason::kRestart);
  EXPECT_EQ(TakeLog(), Texts{"epoch"});
  EXPECT_EQ(core.counters().epochs, 2u);
  EXPECT_EQ(core.counters().incomplete, 0u);
}

TEST_F(RelayCoreTest, LostBatchesBeginAnEpochThatLacksBatches) {
  for (const ResetReason reason : {ResetReason::kLostBatches, ResetReason::kDoubt}) {
    Apply(0);
    TakeLog();
    core.Reset(reason);
    EXPECT_EQ(TakeLog(), (Texts{"epoch", "lost"}));
  }
}

// If the relay did not begin a complete epoch, the routers behind the relay would stay cleared,
// although no batch of the new run is missing.
TEST_F(RelayCoreTest, ARestartAfterLostBatchesBeginsACompleteEpoch) {
  Apply(0);
  core.Reset(ResetReason::kLostBatches);
  TakeLog();
  core.Reset(ResetReason::kRestart);
  Apply(0);
  EXPECT_EQ(TakeLog(), (Texts{"epoch", "0.0", "silent"}));
}

TEST_F(RelayCoreTest, AnEmptyEpochIsNotBegunAgain) {
  core.Reset(ResetReason::kRestart);
  EXPECT_EQ(TakeLog(), Texts{});
  core.NoteState(SourceState::kCleared);
  EXPECT_EQ(TakeLog(), (Texts{"lost", "speaks"}));
  core.NoteState(SourceState::kCleared);
  EXPECT_EQ(TakeLog(), Texts{"speaks"});
}

TEST_F(RelayCoreTest, WithoutAPublisherNothingIsPublished) {
  Apply(0);
  begin_succeeds = false;
  core.Reset(ResetReason::kLostBatches);
  TakeLog();
  Apply(0);
  core.NoteState(SourceState::kCleared);
  core.Reset(ResetReason::kRestart);
  EXPECT_EQ(TakeLog(), Texts{});
  EXPECT_EQ(core.counters().epochs, 1u);
}

}  // namespace
}  // namespace kvcast::stream
