// Cross-checks of block tables against the pool, for tests and debug builds. Cost: O(pool +
// tables).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "src/engine/group_managers.h"
#include "src/engine/request_slots.h"

namespace kvcast::engine {

// Checks that every block has at least one reference per table that contains the block.
Status AuditTables(const BlockPool& pool, const GroupManagers& managers, const RequestSlots& slots);

// Every digest that is cached for a group, with the number of blocks that hold it.
std::vector<CachedKey> CachedKeysOf(const BlockPool& pool, GroupIdx group);

}  // namespace kvcast::engine
