// The matrix of a simulation: each slice of each workload, with each rule, over each index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/simulate/fleet_simulation.h"
#include "apps/simulate/simulate_options.h"
#include "kvcast/core/status.h"

namespace kvcast::simulate {

struct MatrixRun {
  std::string workload;
  int64_t slice = 0;
  std::string rule;
  std::string index;
  RunResult result;

  // The name of the run's arm. An arm is a rule over an index.
  std::string arm() const { return rule + "/" + index; }
};

// Two arms over the same slices of a workload.
struct PairedRatio {
  std::string workload;
  std::string a;
  std::string b;
  // Mean time to the first token of `a`, divided by the mean time of `b`. Both are means over the
  // slices.
  double ratio = 1;
  // The 95 % interval, by a bootstrap over the slices. With one slice, both ends are the ratio.
  double low = 1;
  double high = 1;
};

struct Matrix {
  std::vector<MatrixRun> runs;  // ordered by workload, slice, rule, index
  std::vector<PairedRatio> pairs;
};

// Runs options.jobs simulations at a time. The result does not depend on the number of jobs.
// `progress(done, total)` is called from one thread at a time. Error: an option is wrong, or a
// trace cannot be read.
Result<Matrix> RunMatrix(const SimulateOptions& options,
                         const std::function<void(size_t, size_t)>& progress);

// A ratio and its 95 % interval.
struct RatioInterval {
  double ratio = 1;
  double low = 1;
  double high = 1;
};
// Returns sum(a) / sum(b), and the 95 % interval of this ratio over resamples of the positions.
// Deterministic. REQUIRES: equal sizes, above 0; all values above 0.
RatioInterval PairedBootstrap(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace kvcast::simulate
