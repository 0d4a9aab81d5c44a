// A source whose state is too large is reset and quarantined.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/extended_harness.h"
#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

TEST(SourceLimit, AStateThatIsTooLargeIsForgotten) {
  for (const bool can_replay : {false, true}) {
    SourceHarness source(can_replay);
    source.JoinAndApply(3);
    source.next_result = BatchResult::kTooLarge;
    source.Live(3);
    EXPECT_EQ(source.TakeDeliveries(), (Texts{"0.3", "reset doubt"}));
    EXPECT_EQ(source.state(), SourceState::kQuarantined);
    EXPECT_EQ(source.status().reason, SourceReason::kTooLarge);
    EXPECT_EQ(source.status().weight, 0);
    EXPECT_EQ(source.status().quarantines, 1u);
    source.Live(4);
    EXPECT_EQ(source.TakeDeliveries(), Texts{"0.4"}) << "the source must still be followed";
  }
}

TEST(SourceLimit, TheQuarantineEndsAfterAWhile) {
  SourceHarness source(/*can_replay=*/false);
  source.JoinAndApply(3);
  source.next_result = BatchResult::kTooLarge;
  source.Live(3);
  source.now_ms += Quarantine::kMinMs - 1;
  source.Live(4);
  source.Timer();
  EXPECT_EQ(source.state(), SourceState::kQuarantined);
  source.now_ms += 1;
  source.Live(5);
  source.Timer();
  EXPECT_EQ(source.state(), SourceState::kCleared);
  EXPECT_EQ(source.status().reason, SourceReason::kTooLarge);
  source.next_result = BatchResult::kTooLarge;
  source.Live(6);
  source.now_ms += Quarantine::kMinMs;
  source.Timer();
  EXPECT_EQ(source.state(), SourceState::kQuarantined) << "each further time is longer";
}

using ExtendedSourceLimit = ExtendedHarness;

TEST_F(ExtendedSourceLimit, NoSnapshotIsRequestedDuringTheQuarantine) {
  JoinEmpty();
  next_result = BatchResult::kTooLarge;
  Live(0);
  const int64_t begin_ms = now_ms;
  std::optional<Verb> verb;
  while ((verb = AskedVerb()) != Verb::kSnapshot && source.deadline_ms() < kNever) {
    if (verb) End(1);
    WaitUntilDue();
  }
  EXPECT_EQ(verb, Verb::kSnapshot);
  EXPECT_EQ(now_ms - begin_ms, Quarantine::kMinMs);
}

}  // namespace
}  // namespace kvcast::stream
