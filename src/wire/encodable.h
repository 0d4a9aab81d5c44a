// What an event must hold to for its bytes to be decodable.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"

namespace kvcast::wire {

// Counts and lengths have 32 bits on the wire.
inline constexpr size_t kMaxLength = UINT32_MAX;

// nullptr: a decoder without limits takes back what any dialect writes of the event. Else what is
// wrong with it.
const char* ProblemOf(const BlockStored& event);
const char* ProblemOf(const BlockRemoved& event);
const char* ProblemOf(const AllBlocksCleared& event);

// Whether EncodeBatch takes the batch, and its error if not.
Status CheckEncodable(const EventBatch& batch);
Status TooManyEvents();
Status BadEvent(size_t index, const char* problem);

}  // namespace kvcast::wire
