// Cross-checks of block tables against the pool, for tests and debug builds: O(pool + tables).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "src/engine/group_managers.h"
#include "src/engine/request_slots.h"

namespace kvcast::engine {

// Every block of a table has at least one reference per table that holds it.
Status AuditTables(const BlockPool& pool, const GroupManagers& managers, const RequestSlots& slots);

// Every digest cached for a group, with the number of blocks that hold it.
std::vector<CachedKey> CachedKeysOf(const BlockPool& pool, GroupIdx group);

}  // namespace kvcast::engine
