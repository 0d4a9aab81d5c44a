// The conditions under which the bytes of an event can be decoded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"

namespace kvcast::wire {

// Counts and lengths have 32 bits on the wire.
inline constexpr size_t kMaxLength = UINT32_MAX;

// Returns nullptr if a decoder without limits accepts the encoding of the event in every dialect.
// Otherwise returns a text that names the problem.
const char* ProblemOf(const BlockStored& event);
const char* ProblemOf(const BlockRemoved& event);
const char* ProblemOf(const AllBlocksCleared& event);

// Ok if EncodeBatch accepts the batch; otherwise the error of EncodeBatch.
Status CheckEncodable(const EventBatch& batch);
Status TooManyEvents();
Status BadEvent(size_t index, const char* problem);

}  // namespace kvcast::wire
