// ApproximateIndex: the blocks that a router without events assumes in each engine's cache. The
// router assumes that an engine keeps each prefix of a routed prompt for a fixed time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "apps/simulate/prompts.h"

namespace kvcast::simulate {

class ApproximateIndex {
 public:
  // Dynamo's approximate mode keeps a prefix for 120 s.
  static constexpr double kLifetimeSeconds = 120;

  ApproximateIndex(size_t engines, size_t prefixes)
      : routed_s_(engines, std::vector<float>(prefixes, -std::numeric_limits<float>::infinity())) {}

  void Routed(size_t engine, std::span<const PrefixNumber> prefixes, double now_s) {
    for (const PrefixNumber prefix : prefixes) {
      routed_s_[engine][prefix] = static_cast<float>(now_s);
    }
  }
  void Forget(size_t engine) {
    std::ranges::fill(routed_s_[engine], -std::numeric_limits<float>::infinity());
  }
  // The number of leading prefixes that the engine is assumed to hold.
  int64_t Match(size_t engine, std::span<const PrefixNumber> prefixes, double now_s) const {
    // A prefix is routed at least as late as every longer prefix.
    const std::vector<float>& routed_s = routed_s_[engine];
    const auto oldest = static_cast<float>(now_s - kLifetimeSeconds);
    return std::ranges::partition_point(
               prefixes, [&](PrefixNumber prefix) { return routed_s[prefix] >= oldest; }) -
           prefixes.begin();
  }

 private:
  std::vector<std::vector<float>> routed_s_;  // by engine and prefix: time of the last routing
};

}  // namespace kvcast::simulate
