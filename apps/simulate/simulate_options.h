// Options of `kvcast simulate`, filled by the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvcast::simulate {

struct SimulateOptions {
  std::vector<std::string> traces;     // files; each is a workload
  std::vector<std::string> workloads;  // agents, shared, chat; empty: all if there are no traces
  int64_t slices = 10;
  int64_t slice_requests = 0;  // 0: the default of the workload
  int64_t engines = 8;
  std::string model = "hybrid";
  std::string retention = "0";
  int64_t cpu_blocks = 0;
  std::string rules = "kvcast,dynamo,least_loaded";
  std::string index = "exact,full";
  double delay_ms = 2;
  double loss = 0;
  uint64_t seed = 1;
  int64_t jobs = 1;
  double slow_factor = 1;           // of engine 0
  std::optional<double> kill_at_s;  // end of engine 0
  std::string report;               // folder; empty: none
  bool list_rules = false;
  bool json = false;
};

}  // namespace kvcast::simulate
