// Violations of the guarantees of a stream, by name, and the rare cases that a run has reached.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvcast::sim {

struct Violation {
  // Atomic, Ordered, Honest, Detecting, Converging, Isolated, Fenced, Bounded or Prompt.
  std::string guarantee;
  std::string what;
};

// How often each rare case occurred.
using Reached = std::map<std::string, uint64_t>;

// The result of one run.
struct Record {
  std::vector<Violation> violations;
  Reached reached;
  uint64_t events = 0;
  uint64_t faults = 0;

  void Fail(const std::string& guarantee, const std::string& what) {
    if (violations.size() < 10) violations.push_back({guarantee, what});
  }
};

}  // namespace kvcast::sim
