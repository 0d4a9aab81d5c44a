// If the publisher is silent, the source sends probes. A probe finds a lost tail and a silent
// restart without a further live message.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

TEST(SourceProbe, IsSentSoonAfterJoining) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Replay(0, 2);
  EXPECT_EQ(source.deadline_ms(), source.now_ms + LookSchedule::kSettleMs);
  source.TakeRequest();
  source.WaitUntilDue();
  EXPECT_EQ(source.TakeRequest(), 1u);
  EXPECT_EQ(source.state(), SourceState::kSynced);
  source.Replay(1, 3);  // number 2 was published before the subscription arrived
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 3));
}

TEST(SourceProbe, FindsALostTail) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.WaitUntilDue();
  EXPECT_EQ(source.TakeRequest(), 2u);
  source.Replay(2, 5);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 5));
  EXPECT_EQ(source.deadline_ms(), source.now_ms + SourceLimits().probe_interval_ms);
}

TEST(SourceProbe, FindsASilentRestart) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Replay(0, 3);
  source.WaitUntilDue();
  source.End();
  EXPECT_EQ(source.TakeDeliveries().back(), "reset restart");
}

TEST(SourceProbe, LiveTrafficDelaysAProbe) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(1);
  source.now_ms += 1500;
  source.Live(1);
  EXPECT_EQ(source.deadline_ms(), source.now_ms + SourceLimits().probe_interval_ms);
}

TEST(SourceProbe, AProbeDoesNotHoldBackLiveBatches) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(2);
  source.WaitUntilDue();
  source.Live(2);
  EXPECT_EQ(source.TakeDeliveries(), Batches(2, 3));
}

TEST(SourceProbe, SilenceIsNotSynced) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(2);
  source.WaitUntilDue();
  EXPECT_EQ(source.state(), SourceState::kSynced);
  source.WaitUntilDue();
  EXPECT_EQ(source.state(), SourceState::kStale);
  source.Live(2);
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceProbe, ServerWithoutARingIsNotARestart) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.WaitUntilDue();
  source.End();
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceProbe, CanBeTurnedOff) {
  SourceLimits limits;
  limits.probe_interval_ms = 0;
  SourceHarness source(/*can_replay=*/true, limits);
  source.JoinAndApply(3);
  EXPECT_EQ(source.deadline_ms(), kNever);
}

}  // namespace
}  // namespace kvcast::stream
