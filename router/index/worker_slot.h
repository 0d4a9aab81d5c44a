// WorkerSlot: the dense number of a registered worker or of a hidden generation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::router {

// The number is reused after the removal.
using WorkerSlot = uint32_t;

}  // namespace kvcast::router
