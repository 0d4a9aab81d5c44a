// The fields of a batch that a dialect keeps. Encoding and then decoding must give this batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"

namespace kvcast::wire {

// The batch without the fields that the dialect lacks.
EventBatch KeptFields(const EventBatch& batch, Dialect dialect);

// True if every field is equal. NaN equals NaN of the same bits.
bool SameBatch(const EventBatch& a, const EventBatch& b);

}  // namespace kvcast::wire
