// The calibration recovers the costs that the timed copies had.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/path_chooser.h"
#include "cuda/probe_runner.h"
#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;

constexpr size_t kKiB = 1024;

// Times are in seconds, rates in bytes per second.
struct Machine {
  double link = 55e9;
  double start = 9e-6;
  double copy = 0.55e-6;
  double row = 0.08e-6;
  double launch = 7e-6;
  double piece = 0.015e-6;
  double block = 13e9;  // rate of a thread block
  double kernel_link = 52e9;
  double device = 900e9;

  double Time(const Probe& probe) const {
    const auto bytes = static_cast<double>(probe.bytes());
    const auto copies = static_cast<double>(probe.copies);
    const auto rows = copies * probe.rows;
    switch (probe.kind) {
      case ProbeKind::kEngine:
        return start + std::max(rows * copy, bytes / link);
      case ProbeKind::kEngineRows:
        return start + std::max(copies * copy + rows * row, bytes / link);
      case ProbeKind::kKernel:
        return launch + std::max(rows * piece, bytes / std::min(kernel_link, probe.blocks * block));
      case ProbeKind::kDeviceKernel:
        return launch + bytes / device;
    }
    return 0;
  }
  MeasureProbe Measure() const {
    return [this](const Probe& probe) -> Result<double> { return Time(probe); };
  }
};

void ExpectClose(double value, double want) { EXPECT_NEAR(value / want, 1, 0.05); }

TEST(Calibration, FindsTheCostsOfTheMachine) {
  const Machine machine;
  const auto costs = Calibrate({}, machine.Measure());
  ASSERT_TRUE(costs.ok());
  EXPECT_TRUE(costs->measured);
  ExpectClose(costs->link_rate, machine.link);
  ExpectClose(costs->engine_start, machine.start);
  ExpectClose(costs->engine_per_copy, machine.copy);
  ExpectClose(costs->engine_per_row, machine.row);
  ExpectClose(costs->kernel_start, machine.launch);
  ExpectClose(costs->kernel_rate, machine.kernel_link);
  ExpectClose(costs->device_rate, machine.device);
  // For a piece of 1 KiB the link takes longer than the table entry.
  ExpectClose(costs->kernel_per_piece, 1024 / machine.kernel_link);
}

TEST(Calibration, UsesTheFewestMultiprocessorsThatFillTheLink) {
  Machine machine;
  EXPECT_EQ(Calibrate({}, machine.Measure())->kernel_blocks, 4);
  machine.block = 30e9;
  EXPECT_EQ(Calibrate({}, machine.Measure())->kernel_blocks, 2);
  machine.block = 1e9;
  EXPECT_EQ(Calibrate({}, machine.Measure())->kernel_blocks, 8);
}

TEST(Calibration, AGivenNumberOfMultiprocessorsIsMeasuredAlone) {
  const Machine machine;
  std::vector<int> blocks;
  const auto costs = Calibrate({.kernel_blocks = 2}, [&](const Probe& probe) -> Result<double> {
    if (probe.kind == ProbeKind::kKernel && probe.bytes() > kKiB) blocks.push_back(probe.blocks);
    return machine.Time(probe);
  });
  EXPECT_EQ(costs->kernel_blocks, 2);
  ExpectClose(costs->kernel_rate, 2 * machine.block);
  EXPECT_EQ(blocks, (std::vector<int>{2, 2}));
}

TEST(Calibration, WithoutRowsTheCostPerRowIsInfinite) {
  const Machine machine;
  const auto costs = Calibrate({.has_rows = false}, machine.Measure());
  EXPECT_TRUE(std::isinf(costs->engine_per_row));
}

TEST(Calibration, TheErrorOfAFailedProbeIsReturned) {
  const Machine machine;
  int calls = 0;
  const auto costs = Calibrate({}, [&](const Probe& probe) -> Result<double> {
    if (++calls == 5) return Status(StatusCode::kUnavailable, "out of order");
    return machine.Time(probe);
  });
  EXPECT_EQ(costs.status().message(), "out of order");
  EXPECT_EQ(calls, 5);
}

TEST(Calibration, AProbeTimeOfZeroIsAnError) {
  const auto costs = Calibrate({}, [](const Probe&) -> Result<double> { return 0.0; });
  EXPECT_EQ(costs.status().code(), StatusCode::kUnavailable);
}

TEST(Calibration, ProbesFitTheirMemory) {
  const Machine machine;
  const auto costs = Calibrate({}, [&](const Probe& probe) -> Result<double> {
    const bool within_gpu = probe.kind == ProbeKind::kDeviceKernel;
    EXPECT_LE(probe.bytes(), within_gpu ? kMaxProbeBytes / 2 : kMaxProbeBytes);
    return machine.Time(probe);
  });
  EXPECT_TRUE(costs.ok());
}

// End to end: costs that were measured on a device lead to the same choices as the true costs of
// the device.
TEST(Calibration, ChoicesOnADeviceFollowItsCosts) {
  for (const double kernel_rate : {48e9, 6e9}) {
    FakeDriver driver;
    driver.costs.link = 50e9;
    driver.costs.copy = 0.55e-6;
    driver.costs.row = 10e-6;
    driver.costs.block = kernel_rate / 8;
    const CudaDevice device = driver.Open();
    const auto kernels = CopyKernels::Load(device);
    ASSERT_TRUE(kernels.ok());
    auto runner = ProbeRunner::Create(device, *kernels);
    ASSERT_TRUE(runner.ok()) << runner.status().ToString();
    const auto costs = Calibrate(
        {}, [&](const Probe& probe) { return (*runner)->Measure(CopyDirection::kStore, probe); });
    ASSERT_TRUE(costs.ok()) << costs.status().ToString();
    ExpectClose(costs->link_rate, 50e9);
    ExpectClose(costs->engine_per_copy, 0.55e-6);
    ExpectClose(costs->kernel_rate, kernel_rate);
    PathChooser chooser({.has_staging = false}, *costs);
    CopyShape shape;
    for (size_t i = 0; i < 512; ++i) {
      auto* const dst = reinterpret_cast<std::byte*>((2 * i + 1) * 8 * kKiB);
      shape.Add(CopyDirection::kStore, {nullptr, dst, 8 * kKiB, 0, 0, 1});
    }
    EXPECT_EQ(chooser.Choose(shape),
              kernel_rate > 20e9 ? CudaCopyPath::kKernel : CudaCopyPath::kCopyEngine);
    EXPECT_TRUE(driver.faults.empty()) << driver.faults.front();
  }
}

}  // namespace
}  // namespace kvcast::cuda
