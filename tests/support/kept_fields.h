// KeptFields: the batch that remains if a batch is encoded in a dialect and then decoded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"

namespace kvcast::wire {

// Returns the batch without the fields that the dialect lacks.
EventBatch KeptFields(const EventBatch& batch, Dialect dialect);

// True if every field is equal. A NaN equals a NaN with the same bits.
bool SameBatch(const EventBatch& a, const EventBatch& b);

}  // namespace kvcast::wire
