// Stored events of single blocks, joined where one goes on where another ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::offload {

// An event for every run of blocks of one group that follow one another, as if they had been stored
// together; in order of their last blocks. Events that say no tokens stay as they are.
std::vector<BlockStored> JoinChains(std::vector<BlockStored> events);

}  // namespace kvcast::offload
