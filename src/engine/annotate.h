// What a stored event says about its group, which the pool that made the event does not know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::engine {

// Fills in spec kind and window of the event's group. An event without a group index is left
// without them; so is one whose index no group has, which is an error that names the index.
Status Annotate(std::span<const GroupSpec> groups, BlockStored& event);

}  // namespace kvcast::engine
