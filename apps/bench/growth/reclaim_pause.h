// Measures how long the removal of a worker delays the batches of other workers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/ids.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {

struct ReclaimPause {
  double total_ns = 0;          // from the first call of Reclaim to the last
  double longest_batch_ns = 0;  // of the batches of `prober`; they wait while Reclaim holds a lock
};

// Removes `leaver`, and calls Reclaim until there is no work. Another thread applies batches of one
// block for `prober` at the same time, one after the other. REQUIRES: the workers are registered,
// and `prober` has no blocks.
ReclaimPause MeasureReclaim(PrefixIndex& index, WorkerId leaver, WorkerId prober);

}  // namespace kvcast::bench
