// SPDX-License-Identifier: Apache-2.0
#include "src/engine/table_audit.h"

#include <string>

namespace kvcast::engine {

Status AuditTables(const BlockPool& pool, const GroupManagers& managers,
                   const RequestSlots& slots) {
  std::vector<uint32_t> occurrences(static_cast<size_t>(pool.num_blocks()), 0);
  // Slots are dense. A slot without a request has empty tables.
  const auto slot_count = static_cast<uint32_t>(slots.capacity());
  for (size_t group = 0; group < managers.size(); ++group) {
    for (uint32_t slot = 0; slot < slot_count; ++slot) {
      for (const BlockId block : managers[group].table(RequestSlot(slot)))
        ++occurrences[block.value];
    }
  }
  for (uint32_t i = 1; i < occurrences.size(); ++i) {
    if (pool.ref_count(BlockId(i)) >= occurrences[i]) continue;
    return {StatusCode::kInternal, "block " + std::to_string(i) + " is in " +
                                       std::to_string(occurrences[i]) +
                                       " tables with fewer references"};
  }
  return {};
}

std::vector<CachedKey> CachedKeysOf(const BlockPool& pool, GroupIdx group) {
  std::vector<CachedKey> keys;
  pool.cached().ForEachKey([&](const BlockKey& key, int64_t copies) {
    if (key.group == group) keys.push_back({key.digest, copies});
  });
  return keys;
}

}  // namespace kvcast::engine
