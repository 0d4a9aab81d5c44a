// StepEstimator finds the costs of an engine's steps from their times.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/step_estimator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

namespace kvcast {
namespace {

constexpr StepCost kStart{{0.01, 5e-5, 5e-10, 5e-5, 3e-8}};

// A step with decoding requests. Half of the steps have a prompt too.
StepWork AnyStep(std::mt19937_64& random) {
  const auto upto = [&random](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  StepWork step;
  step[WorkPart::kSteps] = 1;
  if (upto(2) == 0) step.AddPrefill(upto(60000), upto(8192));
  const double decodes = static_cast<double>(upto(200));
  step[WorkPart::kDecodeTokens] = decodes;
  step[WorkPart::kDecodeContext] = decodes * static_cast<double>(upto(20000));
  return step;
}

TEST(StepCost, AddsTheParts) {
  StepWork work;
  work[WorkPart::kSteps] = 2;
  work.AddPrefill(100, 10);
  EXPECT_DOUBLE_EQ(work[WorkPart::kPrefillTokens], 10);
  EXPECT_DOUBLE_EQ(work[WorkPart::kPrefillPairs], 10 * 105);
  const StepCost cost{{1, 0.1, 0.001, 7, 9}};
  EXPECT_DOUBLE_EQ(cost.Of(work), 2 + 1 + 1.05);
  EXPECT_DOUBLE_EQ(cost.Prefill(100, 10), 1 + 1.05) << "without the fixed cost of a step";
  work += work;
  EXPECT_DOUBLE_EQ(cost.Of(work), 2 * 4.05);
}

TEST(StepEstimator, FindsPlantedCosts) {
  const StepCost planted{{0.02, 2e-5, 1.5e-9, 1e-4, 1e-8}};
  std::mt19937_64 random(1);
  StepEstimator estimator(kStart);
  for (int i = 0; i < 1000; ++i) {
    const StepWork step = AnyStep(random);
    estimator.Observe(step, planted.Of(step));
  }
  EXPECT_EQ(estimator.observations(), 1000);
  for (size_t i = 0; i < kWorkParts; ++i) {
    EXPECT_NEAR(estimator.cost().seconds[i] / planted.seconds[i], 1, 0.02) << i;
  }
}

TEST(StepEstimator, FindsCostsInNoisyTimes) {
  const StepCost planted{{0.02, 2e-5, 1.5e-9, 1e-4, 1e-8}};
  std::mt19937_64 random(2);
  StepEstimator estimator(kStart);
  for (int i = 0; i < 2000; ++i) {
    const StepWork step = AnyStep(random);
    // The time of a step is up to 10 % too long or too short. Every twentieth step takes four times
    // as long.
    const double noise = 0.9 + 0.2 * static_cast<double>(random() % 1000) / 1000;
    estimator.Observe(step, planted.Of(step) * noise * (i % 20 == 19 ? 4 : 1));
  }
  for (int i = 0; i < 100; ++i) {
    const StepWork step = AnyStep(random);
    EXPECT_NEAR(estimator.cost().Of(step) / planted.Of(step), 1, 0.1);
  }
}

// A client can report the first token too early, or the engine has reused blocks that the router
// does not know.
TEST(StepEstimator, OneTimeThatIsMuchTooShortChangesLittle) {
  StepWork step;
  step[WorkPart::kSteps] = 1;
  step.AddPrefill(0, 2000);
  const double seconds = kStart.Of(step);
  for (const auto& [before, bound] : {std::pair(7, 0.4), std::pair(200, 0.05)}) {
    StepEstimator estimator(kStart);
    for (int i = 0; i < before; ++i) estimator.Observe(step, seconds);
    estimator.Observe(step, seconds / 250);
    for (int i = 0; i < 4; ++i) estimator.Observe(step, seconds);
    EXPECT_NEAR(estimator.cost().Of(step) / seconds, 1, bound) << before;
  }
}

TEST(StepEstimator, StaysAtTheStartWithoutData) {
  StepEstimator estimator(kStart);
  EXPECT_EQ(estimator.cost().seconds, kStart.seconds);
  StepWork step;
  step[WorkPart::kSteps] = 1;
  estimator.Observe(step, 0);
  estimator.Observe(step, -1);
  estimator.Observe(step, std::nan(""));
  EXPECT_EQ(estimator.observations(), 0) << "an invalid time is not counted";
  // Steps without decoding requests do not show the cost of decoding.
  for (int i = 0; i < 100; ++i) {
    StepWork prefill;
    prefill[WorkPart::kSteps] = 1;
    prefill.AddPrefill(0, 100 * (1 + i % 50));
    estimator.Observe(prefill, 3 * kStart.Of(prefill));
  }
  const StepCost& cost = estimator.cost();
  EXPECT_DOUBLE_EQ(cost[WorkPart::kDecodeTokens], kStart[WorkPart::kDecodeTokens]);
  EXPECT_DOUBLE_EQ(cost[WorkPart::kDecodeContext], kStart[WorkPart::kDecodeContext]);
  StepWork prefill;
  prefill[WorkPart::kSteps] = 1;
  prefill.AddPrefill(0, 2000);
  EXPECT_NEAR(cost.Of(prefill) / kStart.Of(prefill), 3, 0.03);
}

TEST(StepEstimator, AFewStepsScaleTheCosts) {
  std::mt19937_64 random(3);
  StepEstimator estimator(kStart);
  for (int i = 0; i < 8; ++i) {
    const StepWork step = AnyStep(random);
    estimator.Observe(step, 2 * kStart.Of(step));
  }
  const StepWork step = AnyStep(random);
  EXPECT_NEAR(estimator.cost().Of(step) / kStart.Of(step), 2, 0.2);
}

// Two almost equal steps with different times do not show the share of each part.
TEST(StepEstimator, StaysNearTheStartAfterNoise) {
  StepEstimator estimator(kStart);
  for (int i = 0; i < 8; ++i) {
    StepWork step;
    step[WorkPart::kSteps] = 1;
    step.AddPrefill(0, 1000 + i % 2);
    estimator.Observe(step, (i % 2 == 0 ? 1.05 : 0.95) * kStart.Of(step));
  }
  for (size_t i = 0; i < kWorkParts; ++i) {
    EXPECT_NEAR(estimator.cost().seconds[i] / kStart.seconds[i], 1, 0.1) << i;
  }
}

TEST(StepEstimator, CostsAreNeverNegative) {
  std::mt19937_64 random(4);
  StepEstimator estimator(kStart);
  for (int i = 0; i < 400; ++i) {
    const StepWork step = AnyStep(random);
    // The times fall as the number of decoding requests grows. No costs explain such times.
    const double seconds = 0.5 / (1 + step[WorkPart::kDecodeTokens]);
    estimator.Observe(step, seconds);
    for (const double part : estimator.cost().seconds) ASSERT_GE(part, 0);
  }
  EXPECT_GT(estimator.cost().Of(AnyStep(random)), 0);
}

TEST(StepEstimator, FollowsAChange) {
  std::mt19937_64 random(5);
  StepEstimator estimator(kStart);
  const StepCost slower{{0.02, 1e-4, 1e-9, 1e-4, 6e-8}};
  for (int i = 0; i < 6000; ++i) {
    const StepWork step = AnyStep(random);
    estimator.Observe(step, (i < 1000 ? kStart : slower).Of(step));
  }
  const StepWork step = AnyStep(random);
  EXPECT_NEAR(estimator.cost().Of(step) / slower.Of(step), 1, 0.05);
}

}  // namespace
}  // namespace kvcast
