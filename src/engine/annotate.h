// Adds to a stored event the fields of its group that the pool does not set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::engine {

// Copies the spec kind and the window of the event's group into the event. If the group has no
// window, the event gets no window. If the event has no group index, the call removes both fields.
// If no group has the event's index, the call removes both fields and returns an error with the
// index.
Status Annotate(std::span<const GroupSpec> groups, BlockStored& event);

}  // namespace kvcast::engine
