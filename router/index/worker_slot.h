// WorkerSlot: the dense number of a registered worker or of a hidden generation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::router {

// A number is used again after its worker or generation was removed.
using WorkerSlot = uint32_t;

}  // namespace kvcast::router
