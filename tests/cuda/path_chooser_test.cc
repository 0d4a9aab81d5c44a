// The path chooser selects a path for the given fragments by the costs of a machine.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/path_chooser.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvcast::cuda {
namespace {

constexpr size_t kKibibyte = 1024;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr auto kEngine = CudaCopyPath::kCopyEngine;
constexpr auto kKernel = CudaCopyPath::kKernel;
constexpr auto kStaged = CudaCopyPath::kStaged;

// A link of 50 GB/s. A descriptor costs the transfer time of 27.5 kB.
CudaCopyCosts Costs() {
  return {.measured = true,
          .link_rate = 50e9,
          .engine_start = 9e-6,
          .engine_per_copy = 0.55e-6,
          .engine_per_row = kNever,
          .kernel_start = 8e-6,
          .kernel_per_piece = 0.02e-6,
          .kernel_rate = 45e9,
          .kernel_blocks = 4,
          .device_rate = 800e9};
}

CopyShape Runs(size_t copies, size_t bytes) {
  CopyShape shape;
  for (size_t i = 0; i < copies; ++i) {
    const auto* const src = reinterpret_cast<const std::byte*>((2 * i + 1) * bytes);
    shape.Add(CopyDirection::kLoad, {src, nullptr, bytes, 0, 0, 1});
  }
  return shape;
}
// The layers of a block are apart on the GPU and adjacent in host memory.
CopyShape Layers(size_t blocks, uint32_t layers, size_t bytes) {
  CopyShape shape;
  for (size_t i = 0; i < blocks; ++i) {
    const auto* const src = reinterpret_cast<const std::byte*>((2 * i + 1) * layers * bytes);
    shape.Add(CopyDirection::kLoad, {src, nullptr, bytes, bytes, 100 * bytes, layers});
  }
  return shape;
}
CudaCopyPath ChoiceOf(const CudaCopyCosts& costs, const CopyShape& shape, PathRules rules = {}) {
  return PathChooser(rules, costs).Choose(shape);
}

TEST(CopyShape, CountsCopiesRowsBytesAndRunsInHostMemory) {
  CopyShape shape;
  std::byte memory[4096];
  shape.Add(CopyDirection::kStore, {nullptr, memory, 100, 500, 100, 4});
  shape.Add(CopyDirection::kStore, {nullptr, memory + 400, 80, 0, 0, 1});
  shape.Add(CopyDirection::kStore, {nullptr, memory + 1000, 120, 0, 0, 1});
  EXPECT_EQ(shape.fragment_bytes, 80u);
  EXPECT_EQ(shape.copies, 3u);
  EXPECT_EQ(shape.rows, 6u);
  EXPECT_EQ(shape.bytes, 600u);
  EXPECT_EQ(shape.host_runs, 2u);
  EXPECT_TRUE(shape.one_host_run_each);
  shape.Add(CopyDirection::kStore, {nullptr, memory + 2000, 100, 100, 200, 2});
  EXPECT_FALSE(shape.one_host_run_each);
}

TEST(PathChooser, LargeFragmentsUseTheCopyEngine) {
  EXPECT_EQ(ChoiceOf(Costs(), Runs(64, 64 * kKibibyte)), kEngine);
  EXPECT_EQ(ChoiceOf(Costs(), Runs(2, 2048 * kKibibyte)), kEngine);
}

TEST(PathChooser, SmallFragmentsUseTheKernel) {
  EXPECT_EQ(ChoiceOf(Costs(), Runs(512, 4 * kKibibyte)), kKernel);
  EXPECT_EQ(ChoiceOf(Costs(), Runs(512, 8 * kKibibyte)), kKernel);
}

TEST(PathChooser, TheKernelMustWinByItsMargin) {
  // At 20 KiB a descriptor takes 0.55 us, and the transfer by a kernel takes 0.455 us.
  const CopyShape shape = Runs(512, 20 * kKibibyte);
  EXPECT_EQ(ChoiceOf(Costs(), shape, {.kernel_margin = 0}), kKernel);
  EXPECT_EQ(ChoiceOf(Costs(), shape, {.kernel_margin = 0.3}), kEngine);
}

TEST(PathChooser, ASlowKernelIsNotTaken) {
  CudaCopyCosts costs = Costs();
  costs.kernel_rate = 8.5e9;  // as on some links towards the host
  EXPECT_EQ(ChoiceOf(costs, Runs(512, 16 * kKibibyte)), kEngine);
}

TEST(PathChooser, AFewFragmentsAreNotWorthALaunch) {
  CudaCopyCosts costs = Costs();
  costs.kernel_start = 12e-6;
  EXPECT_EQ(ChoiceOf(costs, Runs(4, 4 * kKibibyte)), kEngine);
}

TEST(PathChooser, LayersAreStagedIfTheyAreAdjacentInHostMemory) {
  CudaCopyCosts costs = Costs();
  costs.kernel_rate = 25e9;
  EXPECT_EQ(ChoiceOf(costs, Layers(64, 64, 4 * kKibibyte)), kStaged);
  EXPECT_EQ(ChoiceOf(costs, Layers(64, 64, 4 * kKibibyte), {.has_staging = false}), kKernel);
  CopyShape apart = Layers(64, 64, 4 * kKibibyte);
  apart.one_host_run_each = false;
  EXPECT_EQ(ChoiceOf(costs, apart), kKernel);
}

TEST(PathChooser, TheCopyEngineIsChosenIfRowsAsOneDescriptorAreCheaper) {
  CudaCopyCosts costs = Costs();
  costs.kernel_rate = 25e9;
  EXPECT_FALSE(RowsAsOneIsCheaper(costs, Layers(64, 64, 4 * kKibibyte)));
  costs.engine_per_row = 0.02e-6;
  EXPECT_TRUE(RowsAsOneIsCheaper(costs, Layers(64, 64, 4 * kKibibyte)));
  EXPECT_EQ(ChoiceOf(costs, Layers(64, 64, 4 * kKibibyte)), kEngine);
}

TEST(PathChooser, AForcedPathIsUsedWherePossible) {
  EXPECT_EQ(ChoiceOf(Costs(), Runs(512, 4 * kKibibyte), {.forced = kEngine}), kEngine);
  EXPECT_EQ(ChoiceOf(Costs(), Runs(2, 2048 * kKibibyte), {.forced = kKernel}), kKernel);
  EXPECT_EQ(ChoiceOf(Costs(), Runs(2, 2048 * kKibibyte), {.forced = kStaged}), kStaged);
  CopyShape apart = Layers(64, 64, 4 * kKibibyte);
  apart.one_host_run_each = false;
  EXPECT_EQ(ChoiceOf(Costs(), apart, {.forced = kStaged}), kEngine);
}

TEST(PathChooser, WithoutCostsARuleOfThumbDecides) {
  EXPECT_EQ(ChoiceOf({}, Runs(512, 32 * kKibibyte)), kEngine);
  EXPECT_EQ(ChoiceOf({}, Runs(32, 16 * kKibibyte)), kKernel);
  EXPECT_EQ(ChoiceOf({}, Runs(31, 16 * kKibibyte)), kEngine);
  EXPECT_EQ(ChoiceOf({}, Runs(512, 16 * kKibibyte), {.has_kernel = false}), kEngine);
}

TEST(PathChooser, AChoiceStaysUntilAnotherIsClearlyBetter) {
  PathChooser chooser({.has_staging = false, .kernel_margin = 0}, Costs());
  // 16 KiB and 31 KiB belong to one class.
  EXPECT_EQ(chooser.Choose(Runs(512, 16 * kKibibyte)), kKernel);
  EXPECT_EQ(chooser.Choose(Runs(512, 26 * kKibibyte)), kKernel);  // the copy engine is 6.5 % faster
  EXPECT_EQ(chooser.Choose(Runs(16, 31 * kKibibyte)), kKernel);
  PathChooser other({.has_staging = false, .kernel_margin = 0}, Costs());
  EXPECT_EQ(other.Choose(Runs(512, 26 * kKibibyte)), kEngine);
}

TEST(PathChooser, EachSizeHasItsOwnChoice) {
  PathChooser chooser({}, Costs());
  EXPECT_EQ(chooser.Choose(Runs(512, 4 * kKibibyte)), kKernel);
  EXPECT_EQ(chooser.Choose(Runs(16, 256 * kKibibyte)), kEngine);
  const auto classes = chooser.classes();
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].fragment_bytes, 4 * kKibibyte);
  EXPECT_EQ(classes[0].choice, kKernel);
  EXPECT_EQ(classes[0].copies[static_cast<size_t>(kKernel)], 512u);
  EXPECT_EQ(classes[0].bytes[static_cast<size_t>(kKernel)], 512 * 4 * kKibibyte);
  EXPECT_EQ(classes[0].copies[static_cast<size_t>(kEngine)], 0u);
  EXPECT_EQ(classes[1].choice, kEngine);
  // The expected time of the copy engine is 9 us plus the time of 512 descriptors.
  EXPECT_NEAR(classes[0].expected[static_cast<size_t>(kEngine)], 290.6e-6, 1e-9);
  EXPECT_NEAR(classes[0].expected[static_cast<size_t>(kKernel)], 54.6e-6, 1e-7);
}

}  // namespace
}  // namespace kvcast::cuda
