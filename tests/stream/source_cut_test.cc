// Tests answers whose connection ends before END, for example because one of the batches cannot be
// sent.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

// Waits until the cut request is repeated. Returns the waiting time in milliseconds.
int64_t WaitForRequest(SourceHarness& source) {
  const int64_t since = source.now_ms;
  while (!source.TakeRequest()) source.WaitUntilDue();
  return source.now_ms - since;
}

TEST(SourceCut, IsAskedAgainSoonAndThenLater) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  EXPECT_EQ(source.TakeRequest(), 2u);
  source.Cut();
  EXPECT_EQ(WaitForRequest(source), RequestPacer::kMinRetryMs);
  source.Cut();
  EXPECT_EQ(WaitForRequest(source), 2 * RequestPacer::kMinRetryMs);
  EXPECT_EQ(source.state(), SourceState::kGap);
}

TEST(SourceCut, RepliesBeforeTheCutAreUsed) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  source.Cut();
  source.Replay(2, 5);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"0.3", "0.4", "0.5"}));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceCut, AReplyAfterTheCutDoesNotDelayTheNextRequest) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  source.TakeRequest();
  source.Cut();
  source.Reply(2);
  EXPECT_EQ(WaitForRequest(source), RequestPacer::kMinRetryMs);
}

TEST(SourceCut, AHoleThatCannotBeSentIsSkipped) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(4);
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) {
    source.Reply(2);
    source.Cut();
    source.WaitUntilDue();
  }
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches", "0.4"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

// The newest batch cannot be sent. No other message shows that this batch exists.
TEST(SourceCut, ATailThatCannotBeSentIsNotSynced) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Disconnect();
  source.Connect();
  source.TakeRequest();
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) {
    EXPECT_NE(source.state(), SourceState::kSynced) << i;
    source.Reply(2);
    source.Cut();
    EXPECT_NE(source.state(), SourceState::kSynced) << i;
    source.WaitUntilDue();
  }
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
  // The source sends no further request.
  source.TakeRequest();
  EXPECT_FALSE(source.replay_open());
  source.Live(4);
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) {
    source.Cut();
    source.WaitUntilDue();
  }
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"0.4"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceCut, AFirstBatchThatCannotBeSentIsNotSynced) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) {
    EXPECT_EQ(source.state(), SourceState::kBootstrap) << i;
    source.Cut();
    source.WaitUntilDue();
  }
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

}  // namespace
}  // namespace kvcast::stream
