// What a batch must hold to for its payload to be decodable.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/event.h"
#include "kvcast/status.h"

namespace kvcast::wire {

// Ok: a decoder without limits takes back what any dialect writes of the batch.
Status CheckEncodable(const EventBatch& batch);

}  // namespace kvcast::wire
