// StepEstimator: learns the seconds per unit of work from observed times.
//
// It keeps the sums of a least-squares fit of relative errors, in which older observations count
// less. Until there are enough observations, the result stays close to the start costs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "router/select/step_cost.h"

namespace kvcast {

// Thread-compatible.
class StepEstimator {
 public:
  explicit StepEstimator(const StepCost& start);

  // `seconds`: the time that the work took. An observation with a time of 0 or less is ignored.
  void Observe(const StepWork& work, double seconds);
  const StepCost& cost() const { return cost_; }
  int64_t observations() const { return observations_; }

 private:
  void Solve();

  const StepCost start_;
  StepCost cost_;
  int64_t observations_ = 0;
  // Normal equations, in units of start_: row i, column j.
  std::array<std::array<double, kWorkParts>, kWorkParts> products_{};
  std::array<double, kWorkParts> targets_{};
};

}  // namespace kvcast
