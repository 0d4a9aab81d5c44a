// Violations of the guarantees of a stream, by name, and the rare cases that a run has reached.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvcast::sim {

// After this time without faults, no source may be synced with an outdated state.
inline constexpr int64_t kDetectionMs = 12000;

struct Violation {
  // One of these names:
  //   Atomic      The state does not change before a snapshot is complete.
  //   Ordered     Batches are numbered and applied in order.
  //   Honest      A synced state equals the oracle's state, and the status fits the state.
  //   Detecting   Lost batches, silence and damage are found within a limited time.
  //   Converging  After the faults, the state reaches the publisher's state.
  //   Isolated    No batch of another publisher is applied.
  //   Fenced      Data of different lives of a publisher is not mixed.
  //   Bounded     The requests, the held batches and the length of the run are limited.
  //   Prompt      No batch or message that is due is left waiting.
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
