// SPDX-License-Identifier: Apache-2.0
#include "router/select/step_estimator.h"

#include <algorithm>
#include <cmath>

namespace kvcast {
namespace {

// Weight of all older observations when a new one arrives. About 1,000 observations count.
constexpr double kMemory = 0.999;
// Weight of the start costs, in observations.
constexpr double kStartWeight = 0.02;
constexpr int64_t kSolveEvery = 4;  // observations
// The largest ratio of the predicted to the real time that has no smaller weight.
constexpr double kMostPredicted = 2;

}  // namespace

StepEstimator::StepEstimator(const StepCost& start) : start_(start), cost_(start) {}

void StepEstimator::Observe(const StepWork& work, double seconds) {
  if (!(seconds > 0)) return;
  std::array<double, kWorkParts> x{};
  for (size_t i = 0; i < kWorkParts; ++i) x[i] = start_.seconds[i] * work.amount[i] / seconds;
  // An observation that the current costs explain badly counts less, because the engine probably
  // did other work too.
  const double predicted = cost_.Of(work) / seconds;
  const double error = std::abs(std::log(std::max(predicted, 1e-6)));
  double weight = observations_ < 50 ? 1 : 1 / (1 + 10 * error * error);
  // An observation of a much too short time has large amounts per second. Without this bound, one
  // such observation would replace hundreds of others.
  if (predicted > kMostPredicted) weight *= kMostPredicted * kMostPredicted / predicted / predicted;
  for (size_t i = 0; i < kWorkParts; ++i) {
    for (size_t j = 0; j < kWorkParts; ++j) {
      products_[i][j] = kMemory * products_[i][j] + weight * x[i] * x[j];
    }
    targets_[i] = kMemory * targets_[i] + weight * x[i];
  }
  if (++observations_ % kSolveEvery == 0) Solve();
}

// Solves (products + start weight) * factors = targets + start weight. Each factor multiplies the
// start cost of its part. A part whose factor would be negative gets the cost 0, and the equations
// of the other parts are solved again.
void StepEstimator::Solve() {
  std::array<bool, kWorkParts> fixed{};
  std::array<double, kWorkParts> factors{};
  for (size_t round = 0; round < kWorkParts; ++round) {
    std::array<std::array<double, kWorkParts + 1>, kWorkParts> rows{};
    for (size_t i = 0; i < kWorkParts; ++i) {
      for (size_t j = 0; j < kWorkParts; ++j) {
        rows[i][j] = fixed[i] || fixed[j] ? 0 : products_[i][j];
      }
      rows[i][i] += fixed[i] ? 1 : kStartWeight;
      rows[i][kWorkParts] = fixed[i] ? 0 : targets_[i] + kStartWeight;
    }
    // The matrix is positive definite, so no pivot is 0.
    for (size_t i = 0; i < kWorkParts; ++i) {
      for (size_t k = i + 1; k < kWorkParts; ++k) {
        const double factor = rows[k][i] / rows[i][i];
        for (size_t j = i; j <= kWorkParts; ++j) rows[k][j] -= factor * rows[i][j];
      }
    }
    for (size_t i = kWorkParts; i-- > 0;) {
      double sum = rows[i][kWorkParts];
      for (size_t j = i + 1; j < kWorkParts; ++j) sum -= rows[i][j] * factors[j];
      factors[i] = sum / rows[i][i];
    }
    const auto lowest = std::ranges::min_element(factors);
    if (*lowest >= 0) break;
    fixed[static_cast<size_t>(lowest - factors.begin())] = true;
  }
  for (size_t i = 0; i < kWorkParts; ++i) {
    cost_.seconds[i] = start_.seconds[i] * std::max(factors[i], 0.0);
  }
}

}  // namespace kvcast
