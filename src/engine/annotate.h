// Adds to a stored event the fields of its group that the pool does not know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::engine {

// Fills in spec kind and window of the event's group. An event without a group index stays
// unchanged. If no group has the event's index, the event stays unchanged, and the error names the
// index.
Status Annotate(std::span<const GroupSpec> groups, BlockStored& event);

}  // namespace kvcast::engine
