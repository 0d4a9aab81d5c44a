// Identity of events: a hash functor that is consistent with operator== of the events.
//
// operator== compares every field. An absent field differs from any value: for example, an absent
// group_idx differs from group_idx 0. The hash covers exactly the fields that operator== compares.
// vLLM's equality compares lora_name too, but vLLM's hash omits lora_name. In vLLM, two events that
// differ only in lora_name therefore have the same hash.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kvcast/core/event.h"

namespace kvcast {

// Hash functor for unordered containers of events. O(size of the event); it allocates nothing.
//
// A hash value is valid only inside one process, and may change with any release. A NaN in an extra
// key is not equal to itself. An event with a NaN is therefore not equal to itself either.
struct EventHash {
  size_t operator()(const BlockStored& event) const noexcept;
  size_t operator()(const BlockRemoved& event) const noexcept;
  size_t operator()(const AllBlocksCleared& event) const noexcept;
  size_t operator()(const Event& event) const noexcept;
};

}  // namespace kvcast
