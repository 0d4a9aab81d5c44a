// Conformance runs: recorded data against our own code, counted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/status.h"

namespace kvcast::tools {

struct ConformanceReport {
  uint64_t files = 0;
  uint64_t compared = 0;                       // checks made
  uint64_t equal = 0;                          // of them, with the recorded outcome
  uint64_t unsupported = 0;                    // records that could not be checked
  std::vector<std::string> first_differences;  // at most one line per file

  bool ok() const { return compared > 0 && equal == compared && unsupported == 0; }
};

// Each takes files or folders (walked for the files of its class). Not ok: a path does not exist,
// cannot be read, or is not of this class; the message names it.
Status RunWireConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunFramesConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunHashConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunEngineConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunRouterConformance(const std::vector<std::string>& paths, ConformanceReport& report);

}  // namespace kvcast::tools
