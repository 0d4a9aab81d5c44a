// Violations of the guarantees that a stream gives, by name, and the paths a run has reached.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvcast::sim {

struct Violation {
  std::string
      guarantee;  // Ordered, Honest, Detecting, Converging, Isolated, Fenced, Bounded, Prompt
  std::string what;
};

// How often something rare happened.
using Reached = std::map<std::string, uint64_t>;

// What one run has seen.
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
