// What a dialect keeps of a batch: the oracle of encode-then-decode.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"

namespace kvcast::wire {

// The batch without the fields that the dialect does not have.
EventBatch KeptFields(const EventBatch& batch, Dialect dialect);

// Equal in every field, NaN being equal to NaN of the same bits.
bool SameBatch(const EventBatch& a, const EventBatch& b);

}  // namespace kvcast::wire
