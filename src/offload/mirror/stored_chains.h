// Joins the BlockStored events of consecutive blocks into one event.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::offload {

// Returns one event for every run of consecutive blocks of one group, as if one call had stored the
// run. The results are ordered by the positions of their final blocks in `events`. Events without
// tokens stay unchanged.
std::vector<BlockStored> JoinChains(std::vector<BlockStored> events);

}  // namespace kvcast::offload
