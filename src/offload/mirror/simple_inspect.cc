// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/engine/table_audit.h"
#include "src/offload/mirror/simple_impl.h"

namespace kvcast {

using offload::BlockCopyPair;

namespace {

template <typename Map>
std::vector<std::string> SortedIds(const Map& map) {
  std::vector<std::string> ids;
  for (const auto& [id, value] : map) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::vector<CachedKey> SimpleOffload::CachedKeys(GroupIdx group) const {
  return engine::CachedKeysOf(impl_->cpu, group);
}

SimpleOffload::State SimpleOffload::Inspect() const {
  State state;
  state.free_blocks = impl_->cpu.FreeList();
  const engine::CachedBlockMap& cached = impl_->cpu.cached();
  for (uint32_t i = 1; i < impl_->cpu.num_blocks(); ++i) {
    const BlockId block(i);
    if (!cached.HasKeys(block)) continue;
    const engine::BlockKey& key = cached.PrimaryKey(block);
    state.cached.push_back({block, {key.digest, key.group, cached.PrimaryCoveredTokens(block)}});
  }
  for (const std::string& id : SortedIds(impl_->pins)) {
    state.matches.emplace_back(id, impl_->pins.at(id).blocks);
  }
  std::map<int64_t, std::vector<std::string>> loads;
  for (const std::string& id : SortedIds(impl_->loads)) {
    const offload::Load& load = impl_->loads.at(id);
    if (load.abandoned) state.abandoned_loads.push_back(id);
    if (load.event) loads[*load.event].push_back(id);
  }
  state.loads.assign(loads.begin(), loads.end());
  for (const auto& [event, store] : impl_->stores) {
    (store.abandoned ? state.abandoned_stores : state.stores).push_back(event);
  }
  for (const std::string& id : SortedIds(impl_->progress)) {
    state.requests.emplace_back(id, impl_->progress.at(id).cursors);
  }
  state.lazy_cursor = impl_->lazy_cursor;
  return state;
}

Status SimpleOffload::CheckInvariants() const {
  if (Status status = impl_->cpu.CheckInvariants(); !status.ok()) return status;
  std::vector<uint32_t> references(static_cast<size_t>(impl_->cpu.num_blocks()));
  const auto count = [&references](std::span<const BlockCopyPair> copies) {
    for (const BlockCopyPair& copy : copies) ++references[copy.cpu.value];
  };
  for (const auto& [id, pin] : impl_->pins) {
    for (const auto& blocks : pin.blocks) {
      for (const BlockId block : blocks) ++references[block.value];
    }
  }
  for (const auto& [id, load] : impl_->loads) count(load.copies);
  for (const auto& [event, store] : impl_->stores) count(store.copies);
  count(impl_->next_store.copies);
  for (uint32_t i = 1; i < references.size(); ++i) {
    if (impl_->cpu.ref_count(BlockId(i)) == references[i]) continue;
    return {StatusCode::kInternal, "host block " + std::to_string(i) + " has " +
                                       std::to_string(impl_->cpu.ref_count(BlockId(i))) +
                                       " references, " + std::to_string(references[i]) +
                                       " are known"};
  }
  return {};
}

}  // namespace kvcast
