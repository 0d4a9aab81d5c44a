// The CPU time of other processes and of the hypervisor is read from the kernel's counters.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/machine/machine_share.h"

#include <gtest/gtest.h>

namespace kvcast::bench {
namespace {

TEST(MachineShare, ReadsTheLineOfAllCores) {
  const auto times =
      ParseCpuTimes("cpu  100 20 30 400 50 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->busy, 100 + 20 + 30 + 6 + 7);
  EXPECT_EQ(times->stolen, 80);
  EXPECT_EQ(times->total, 100 + 20 + 30 + 400 + 50 + 6 + 7 + 80);
}

TEST(MachineShare, InvalidTextGivesNoTimes) {
  for (const char* text : {"", "cpu", "cpu 1 2 3 4 5 6 7", "cpu0 1 2 3 4 5 6 7 8",
                           "cpu 1 2 3 x 5 6 7 8", "cpu 1 2 3 -4 5 6 7 8"}) {
    EXPECT_FALSE(ParseCpuTimes(text)) << text;
  }
}

TEST(MachineShare, OwnTimeIsNotTheTimeOfOthers) {
  const CpuTimes begin = {.total = 1000, .busy = 500, .stolen = 10, .own = 100};
  const CpuTimes end = {.total = 1200, .busy = 620, .stolen = 14, .own = 210};
  const auto shares = MachineShare::Between(begin, end);
  EXPECT_DOUBLE_EQ(shares.others, 0.05);  // 120 busy ticks, 110 of them own, of 200 ticks
  EXPECT_DOUBLE_EQ(shares.stolen, 0.02);
  EXPECT_FALSE(shares.quiet());
}

TEST(MachineShare, RoundingGivesNoNegativeShare) {
  const CpuTimes begin = {.total = 1000, .busy = 500, .stolen = 10, .own = 100};
  const CpuTimes end = {.total = 1100, .busy = 599, .stolen = 10, .own = 200};
  const auto shares = MachineShare::Between(begin, end);
  EXPECT_DOUBLE_EQ(shares.others, 0);
  EXPECT_TRUE(shares.quiet());
  EXPECT_DOUBLE_EQ(MachineShare::Between(begin, begin).others, 0);
}

TEST(MachineShare, ReadsThisMachine) {
  const MachineShare machine;
  const auto shares = machine.Read();
  ASSERT_TRUE(shares);
  EXPECT_GE(shares->others, 0);
  EXPECT_LE(shares->others + shares->stolen, 1);
}

}  // namespace
}  // namespace kvcast::bench
