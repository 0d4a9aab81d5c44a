// The benchmark measures the right methods, checks every byte and detects wrong bytes on a fake
// GPU. The times that it measures here have no meaning.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/copy_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/bench/copy/bench_arena.h"
#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeDriver;
using testing::FakeOptions;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr auto kLoad = CopyDirection::kLoad;
constexpr auto kStore = CopyDirection::kStore;

CopyBenchConfig Small(std::vector<CopyBenchShape> shapes) {
  return {.payload_bytes = 1 << 20, .max_cycles = 2, .max_seconds = 0, .shapes = std::move(shapes)};
}

TEST(CudaCopyBench, MeasuresKvcastAndTheOtherMethods) {
  for (const int version : {13000, 12040}) {
    FakeDriver driver({.version = version});
    std::vector<CopyBenchCell> cells;
    const Status status =
        RunCudaCopyBench(driver.Open(),
                         Small({{.direction = kLoad, .row_bytes = 4096},
                                {.direction = kStore, .row_bytes = 4096, .rows = 8},
                                {.direction = kStore, .row_bytes = 37440}}),
                         [&](const CopyBenchCell& cell) { cells.push_back(cell); });
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_THAT(driver.faults, IsEmpty());
    ASSERT_EQ(cells.size(), 3u);
    std::vector<std::string> names;
    for (const CopyBenchMethod& method : cells[0].methods) {
      names.push_back(method.name);
      EXPECT_GT(method.ratio, 0);
      EXPECT_EQ(method.rival, !method.name.starts_with("kvcast"));
    }
    EXPECT_EQ(names.front(), "kvcast");
    EXPECT_THAT(names, Contains("kvcast staged"));
    EXPECT_THAT(names, Contains("copy loop"));
    EXPECT_EQ(std::ranges::count(names, "batch + merging"), version >= 12080 ? 1 : 0);
    EXPECT_THAT(names, Contains("kernel, one block per fragment"));
    EXPECT_EQ(cells[0].payload_bytes, size_t{1} << 20);
    EXPECT_EQ(cells[0].chosen.empty(), false);
    EXPECT_TRUE(cells[0].best_rival().rival);
  }
}

TEST(CudaCopyBench, AnyWrongByteIsFound) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  auto arena = BenchArena::Create(device, 2 << 20);
  ASSERT_TRUE(arena.ok());
  for (const auto direction : {kLoad, kStore}) {
    const BenchWork work =
        MakeBenchWork(**arena, {.direction = direction, .row_bytes = 4096}, 1 << 20);
    const auto verify = [&](const std::function<void()>& copy) {
      EXPECT_TRUE((*arena)->FillSource(direction).ok());
      (*arena)->ExpectCopies(direction, work.fragments);
      EXPECT_TRUE((*arena)->PoisonTarget(direction).ok());
      copy();
      return (*arena)->Verify(direction);
    };
    const auto copy_all = [&] {
      for (const CopyOp& op : work.fragments) std::copy_n(op.src, op.row_bytes, op.dst);
    };
    EXPECT_TRUE(verify(copy_all).ok());
    EXPECT_THAT(verify([] {}).message(), HasSubstr("is wrong"));
    EXPECT_THAT(verify([&] {
                  copy_all();
                  work.fragments[17].dst[4095] ^= std::byte{1};
                }).message(),
                HasSubstr("is wrong"));
    // The byte lies before the pool, in the guard.
    std::byte* const pool = direction == kLoad ? (*arena)->gpu() : (*arena)->host();
    EXPECT_THAT(verify([&] {
                  copy_all();
                  pool[-1] ^= std::byte{1};
                }).message(),
                HasSubstr("is wrong"));
    EXPECT_EQ(verify([&] {
                copy_all();
                const_cast<std::byte&>(work.fragments[3].src[9]) ^= std::byte{1};
              }).message(),
              "the source has changed");
  }
}

TEST(CudaCopyBench, LostCopiesAreFoundBeforeTheFirstTiming) {
  FakeDriver driver;
  driver.loses_batches = true;
  int cells = 0;
  const Status status =
      RunCudaCopyBench(driver.Open(), Small({{.direction = kStore, .row_bytes = 262144}}),
                       [&](const CopyBenchCell&) { ++cells; });
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), StartsWith("kvcast: byte "));
  EXPECT_EQ(cells, 0);
}

TEST(CudaCopyBench, AMethodThatFailsEndsTheRun) {
  // Number of the final copy call of a run. The benchmark measures the time of this call.
  size_t last = 0;
  for (const bool fails : {false, true}) {
    FakeDriver driver;
    const CudaDevice device = driver.Open();
    if (fails) {
      driver.FailCall("cuMemcpyBatchAsync", CUDA_ERROR_INVALID_VALUE, static_cast<int>(last));
    }
    int cells = 0;
    const Status status =
        RunCudaCopyBench(device, Small({{.direction = kLoad, .row_bytes = 65536}}),
                         [&](const CopyBenchCell&) { ++cells; });
    EXPECT_EQ(status.ok(), !fails) << status.ToString();
    EXPECT_EQ(cells, fails ? 0 : 1);
    last = static_cast<size_t>(std::ranges::count_if(
        driver.batches, [](const auto& batch) { return batch.call == "cuMemcpyBatchAsync 13.0"; }));
  }
}

TEST(CudaCopyBench, WorkIsInTheOrderOfItsShape) {
  FakeDriver driver;
  auto arena = BenchArena::Create(driver.Open(), 2 << 20);
  ASSERT_TRUE(arena.ok());
  const auto blocks = [&](BlockOrder order) {
    const BenchWork work =
        MakeBenchWork(**arena, {.direction = kLoad, .row_bytes = 4096, .order = order}, 64 * 4096);
    std::vector<uint32_t> ids;
    for (const BlockId block : work.blocks) ids.push_back(block.value);
    return ids;
  };
  const auto runs = blocks(BlockOrder::kRunsOfFour);
  EXPECT_FALSE(std::ranges::is_sorted(runs));
  for (size_t i = 0; i < 64; i += 4) {
    EXPECT_THAT(
        std::vector(runs.begin() + static_cast<long>(i), runs.begin() + static_cast<long>(i) + 4),
        ElementsAre(runs[i], runs[i] + 1, runs[i] + 2, runs[i] + 3));
  }
  EXPECT_TRUE(std::ranges::is_sorted(blocks(BlockOrder::kSequential)));
  EXPECT_FALSE(std::ranges::is_sorted(blocks(BlockOrder::kRandom)));
  EXPECT_EQ(blocks(BlockOrder::kRandom).size(), 64u);
}

TEST(CudaCopyBench, TargetsAreThoseOfTheTable) {
  constexpr size_t kLarge = size_t{256} << 20;
  EXPECT_EQ(CopyBenchTarget({.direction = kLoad, .row_bytes = 1 << 20}, kLarge), 0.98);
  EXPECT_EQ(CopyBenchTarget({.direction = kLoad, .row_bytes = 16384}, kLarge), 0.92);
  EXPECT_EQ(CopyBenchTarget({.direction = kStore, .row_bytes = 16384}, kLarge), 0.88);
  EXPECT_EQ(CopyBenchTarget({.direction = kStore, .row_bytes = 4096}, kLarge), 0.80);
  EXPECT_EQ(CopyBenchTarget({.direction = kLoad, .row_bytes = 2 << 20}, 2 << 20), 0.80);
  EXPECT_EQ(CopyBenchTarget({.direction = kLoad, .row_bytes = 32768, .rows = 64}, kLarge), 0.95);
  EXPECT_EQ(CopyBenchTarget({.direction = kLoad, .row_bytes = 16384}, 1 << 20), 0);
}

TEST(CudaCopyBench, BothWaysAndSlowdownRun) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  const auto both = RunBothWays(device, 4 << 20, 2);
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_EQ(both->size(), 3u);
  const auto slowdown = RunSlowdown(device, 3);
  ASSERT_TRUE(slowdown.ok()) << slowdown.status().ToString();
  EXPECT_EQ(slowdown->size(), 12u);
  EXPECT_THAT(driver.faults, IsEmpty());
}

TEST(CudaCopyBench, EveryQuestionIsAnswered) {
  FakeDriver driver;
  std::vector<std::string> answers;
  // The pool is registered in parts, and its size is not a multiple of a part.
  const Status status = RunCudaQuestions(
      driver.Open(), 18 << 20, [&](std::string answer) { answers.push_back(std::move(answer)); });
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const char* const number : {"1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
    EXPECT_THAT(answers, Contains(StartsWith(number + std::string(" ")))) << number;
  }
  EXPECT_THAT(answers, Contains(AllOf(StartsWith("7 cuMemHostAlloc: made in"), HasSubstr("H2D"),
                                      HasSubstr("D2H"))));
  EXPECT_THAT(answers, Contains(StartsWith("7 cuMemCreate: made in")));
  EXPECT_THAT(answers, Contains(AllOf(StartsWith("9 D2H 64 x 64 KiB: one batch "),
                                      HasSubstr("a rebound graph "))));
  EXPECT_THAT(driver.faults, IsEmpty());
  EXPECT_THAT(driver.host_memory, IsEmpty());
  EXPECT_THAT(driver.reservations, IsEmpty());
  EXPECT_THAT(driver.registrations, IsEmpty());
  EXPECT_EQ(driver.live_graphs, 0);
}

TEST(CudaCopyBench, AnswersNameFunctionsThatTheDriverLacks) {
  const auto answers_of = [](const FakeOptions& options) {
    FakeDriver driver(options);
    std::vector<std::string> answers;
    const Status status = RunCudaQuestions(
        driver.Open(), 4 << 20, [&](std::string answer) { answers.push_back(std::move(answer)); });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return answers;
  };
  EXPECT_THAT(answers_of({.missing = "cuMemHostAlloc"}),
              Contains("7 cuMemHostAlloc: the driver does not support this kind of allocation"));
  EXPECT_THAT(
      answers_of({.maps_host_memory = false, .missing = "cuGraph"}),
      AllOf(Contains("7 cuMemCreate: the driver does not support this kind of allocation"),
            Contains("9 H2D 64 x 16 KiB: the CUDA driver does not support graphs of copies")));
}

}  // namespace
}  // namespace kvcast::cuda
