// Joins stored events of single blocks that continue one another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::offload {

// Returns an event for every run of consecutive blocks of one group, as if the run had been stored
// in one call. The events are in order of their last blocks. Events without tokens stay unchanged.
std::vector<BlockStored> JoinChains(std::vector<BlockStored> events);

}  // namespace kvcast::offload
