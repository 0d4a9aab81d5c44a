// Joins the BlockStored events of consecutive blocks into one event.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::offload {

// Returns an event for every run of consecutive blocks of one group, as if the run had been stored
// in one call. The result is ordered by the position of the last block's event in `events`. Events
// without tokens stay unchanged.
std::vector<BlockStored> JoinChains(std::vector<BlockStored> events);

}  // namespace kvcast::offload
