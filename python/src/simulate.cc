// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "apps/simulate/matrix.h"
#include "apps/simulate/simulate_report.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/json_value.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

template <typename T>
void CheckRange(const char* name, T value, T least, T most) {
  if (value >= least && value <= most) return;  // false for a NaN
  ThrowInvalid(std::string(name) + ": must be from " + std::to_string(least) + " to " +
               std::to_string(most));
}

// The ranges of the flags of `kvcast simulate`.
void CheckRanges(const simulate::SimulateOptions& options) {
  CheckRange<int64_t>("slices", options.slices, 1, 1000);
  CheckRange<int64_t>("slice_requests", options.slice_requests, 0, 1 << 20);
  CheckRange<int64_t>("engines", options.engines, 1, 1024);
  CheckRange<int64_t>("cpu_blocks", options.cpu_blocks, 0, 1 << 24);
  CheckRange<int64_t>("jobs", options.jobs, 1, 1024);
  CheckRange("delay_ms", options.delay_ms, 0.0, 3.6e6);
  CheckRange("loss", options.loss, 0.0, 1.0);
}

std::string Joined(const py::object& names, const char* name) {
  if (PyUnicode_Check(names.ptr())) return names.cast<std::string>();
  std::string joined;
  for (const py::handle item : names) {
    if (!PyUnicode_Check(item.ptr())) ThrowType(std::string(name) + ": must be str");
    joined += (joined.empty() ? "" : ",") + item.cast<std::string>();
  }
  return joined;
}

py::object Simulate(const std::vector<std::string>& traces, const py::object& policy,
                    const py::object& index, int64_t engines, const std::string& model,
                    int64_t slices, int64_t slice_requests, const std::string& retention,
                    int64_t cpu_blocks, double delay_ms, double loss, uint64_t seed, int64_t jobs) {
  if (traces.empty()) ThrowInvalid("traces: must not be empty");
  simulate::SimulateOptions options;
  options.traces = traces;
  options.rules = Joined(policy, "policy");
  options.index = Joined(index, "index");
  options.engines = engines;
  options.model = model;
  options.slices = slices;
  options.slice_requests = slice_requests;
  options.retention = retention;
  options.cpu_blocks = cpu_blocks;
  options.delay_ms = delay_ms;
  options.loss = loss;
  options.seed = seed;
  options.jobs = jobs;
  CheckRanges(options);
  const auto text = Take(WithoutGil([&]() -> Result<std::string> {
    const auto matrix = simulate::RunMatrix(options, [](size_t, size_t) {});
    if (!matrix.ok()) return matrix.status();
    return simulate::RenderJson(*matrix);
  }));
  return FromJsonText(text);
}

constexpr char kSimulateDoc[] =
    R"(Compare selection rules with simulated engines, in virtual time, as `kvcast simulate` does.

traces: paths of request traces, plain, .gz or .zst: Mooncake, coding agents or Azure.
policy: rules, as a comma-separated str or a list of str: "kvcast", "dynamo", "least_loaded", ...
index: indexes of the router: "exact", "full", "any", "approx"; as policy.
engines: number of simulated engines, 1 to 1024. model: "hybrid", "full", "gpt-oss", "mamba", ...
slices: slices of each trace, 1 to 1000. slice_requests: requests of a slice; 0: the default.
retention: window blocks to keep: "dense", or an interval in tokens. cpu_blocks: host blocks.
delay_ms: time until the index has a batch. loss: probability that a batch is lost, 0 to 1.
seed: of slices, losses and ties. jobs: simulations that run at the same time.

Returns a dict: "runs" with one element for each slice, rule and index (ttft_mean_ms, reused_tokens,
...), and "pairs" with the ratios of rules. The GIL is released; the call cannot be interrupted.
Thread-safe. Raises InvalidArgumentError for a wrong value, and NotFoundError for a missing file.)";

}  // namespace

void AddSimulate(py::module_& module) {
  module.def("simulate", &Simulate, py::arg("traces"), py::kw_only(),
             py::arg("policy") = "kvcast,dynamo,least_loaded", py::arg("index") = "exact,full",
             py::arg("engines") = 8, py::arg("model") = "hybrid", py::arg("slices") = 10,
             py::arg("slice_requests") = 0, py::arg("retention") = "0", py::arg("cpu_blocks") = 0,
             py::arg("delay_ms") = 2.0, py::arg("loss") = 0.0, py::arg("seed") = uint64_t{1},
             py::arg("jobs") = 1, kSimulateDoc);
}

}  // namespace kvcast::python
