// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/shrink.h"

#include <algorithm>
#include <utility>

namespace kvcast::sim {

Plan Shrink(const Plan& plan, int max_runs) {
  return ShrinkBy(
      plan, [](const Plan& fewer) { return !RunPlan(fewer).violations.empty(); }, max_runs);
}

Plan ShrinkBy(const Plan& plan, const std::function<bool(const Plan&)>& fails, int max_runs) {
  Plan least = plan;
  size_t piece = std::max<size_t>(least.faults.size() / 2, 1);
  while (max_runs > 0 && !least.faults.empty()) {
    bool dropped = false;
    for (size_t begin = 0; begin < least.faults.size() && max_runs > 0; --max_runs) {
      Plan fewer = least;
      const size_t end = std::min(begin + piece, fewer.faults.size());
      fewer.faults.erase(fewer.faults.begin() + static_cast<std::ptrdiff_t>(begin),
                         fewer.faults.begin() + static_cast<std::ptrdiff_t>(end));
      if (fails(fewer)) {
        least = std::move(fewer);
        dropped = true;
      } else {
        begin = end;
      }
    }
    if (piece == 1 && !dropped) break;
    piece = std::max<size_t>(piece / 2, 1);
  }
  return least;
}

}  // namespace kvcast::sim
