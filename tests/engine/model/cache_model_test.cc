// CacheManager agrees with a naive cache made of plain lists, for random mixes of groups. After
// each of the same random calls, block ids, hits, events, copies and free counts are equal.
//
// KVCAST_MODEL_OPS: number of calls (default: a smoke run). KVCAST_MODEL_SEED: the first seed. With
// KVCAST_MODEL_OPS=1 only the first seed runs.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "tests/engine/model/model_run.h"
#include "tests/support/setting.h"

namespace kvcast::naive {
namespace {

constexpr int64_t kCallsPerSeed = 400;
constexpr int64_t kSmokeCalls = 200000;
constexpr int kFatalSignals[] = {SIGABRT, SIGSEGV, SIGFPE};

// If a failed KV_CHECK or a crash ends the program, the signal handler prints this text first.
std::string running_seed;

void PrintSeed(int signal) {
  [[maybe_unused]] const auto written = write(2, running_seed.data(), running_seed.size());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunSeed(uint64_t seed, Coverage& coverage) {
  ModelRun run(seed, coverage);
  if (!run.valid()) return;
  running_seed = "seed " + std::to_string(seed) + ": " + run.Name() + "\n";
  SCOPED_TRACE(running_seed);
  for (int64_t call = 0; call < kCallsPerSeed; ++call) {
    run.Call();
    if (!::testing::Test::HasFailure()) run.Compare();
    if (!::testing::Test::HasFailure()) continue;
    ADD_FAILURE() << "at call " << call;
    return;
  }
  run.End();
}

TEST(CacheModel, AgreesWithPlainListsOnRandomCalls) {
  const int64_t calls = testing::Setting("KVCAST_MODEL_OPS", kSmokeCalls);
  auto seed = static_cast<uint64_t>(testing::Setting("KVCAST_MODEL_SEED", 1));
  for (const int fatal : kFatalSignals) std::signal(fatal, PrintSeed);
  Coverage coverage;
  do {
    RunSeed(seed++, coverage);
  } while (coverage.calls < calls && !HasFailure());
  for (const int fatal : kFatalSignals) std::signal(fatal, SIG_DFL);
  std::cout << coverage.ToString() << "\n";
  if (calls < kSmokeCalls || HasFailure()) return;
  EXPECT_GT(coverage.hits, calls / 100);
  EXPECT_GT(coverage.hits_inside_blocks, calls / 1000);
  EXPECT_GT(coverage.boundaries, calls / 1000);
  EXPECT_GT(coverage.refusals, calls / 100);
  EXPECT_GT(coverage.copies, calls / 1000);
  EXPECT_GT(coverage.external, calls / 1000);
  EXPECT_GT(coverage.resets, calls / 10000);
  EXPECT_GT(coverage.events, calls / 10);
}

}  // namespace
}  // namespace kvcast::naive
