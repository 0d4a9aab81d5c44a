// Identity of events: when two are the same event, and a hash to find them by.
//
// Two events are the same if operator== says so: every field counts, and an absent field differs
// from any value (group_idx 0 is not "no group"). The hash covers exactly what equality does.
// vLLM's hash leaves lora_name out and its equality does not: both choices are consistent, but with
// this one events that differ in their adapter alone do not collide.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kvcast/core/event.h"

namespace kvcast {

// Hash functor for unordered containers of events. O(size of the event), allocates nothing.
// Values are good inside one process: they follow no format, and may change with any release.
// A NaN in an extra key is not equal to itself, so neither is an event that has one.
struct EventHash {
  size_t operator()(const BlockStored& event) const noexcept;
  size_t operator()(const BlockRemoved& event) const noexcept;
  size_t operator()(const AllBlocksCleared& event) const noexcept;
  size_t operator()(const Event& event) const noexcept;
};

}  // namespace kvcast
