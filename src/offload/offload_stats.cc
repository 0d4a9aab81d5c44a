// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kvcast/offload/offload_manager.h"

namespace kvcast {

void AllocationSizes::Add(int64_t size) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), size);
  ++counts[static_cast<size_t>(bound - kBounds.begin())];
  ++count;
  sum += size;
}

}  // namespace kvcast
