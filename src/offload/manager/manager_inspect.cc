// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "src/offload/manager/manager_impl.h"

namespace kvcast {

using offload::ChunkEntry;

namespace {

Status Bug(const std::string& message) { return {StatusCode::kInternal, message}; }

// Every slot that was used at least once belongs to one chunk, or is free.
Status CheckSlots(const OffloadManager::State& state) {
  std::vector<int> owners(static_cast<size_t>(state.slots_used_once));
  const auto count = [&](const std::vector<SlotId>& slots) {
    for (const SlotId slot : slots) ++owners.at(slot.value);
  };
  count(state.free_slots);
  for (const auto& chunk : state.chunks) count(chunk.slots);
  for (size_t slot = 0; slot < owners.size(); ++slot) {
    if (owners[slot] != 1) {
      return Bug("slot " + std::to_string(slot) + " has " + std::to_string(owners[slot]) +
                 " owners");
    }
  }
  return Status();
}

Status CheckCounters(const OffloadManager& manager, const OffloadManager::State& state) {
  int64_t idle = 0;
  int64_t storing = 0;
  for (const auto& chunk : state.chunks) {
    if (std::ssize(chunk.slots) != manager.slots_per_chunk(chunk.key.group)) {
      return Bug("a chunk has " + std::to_string(chunk.slots.size()) + " slots, not " +
                 std::to_string(manager.slots_per_chunk(chunk.key.group)));
    }
    if (chunk.readers == 0) idle += std::ssize(chunk.slots);
    if (chunk.readers == ChunkEntry::kStoring) storing += std::ssize(chunk.slots);
  }
  if (idle != state.evictable_slots)
    return Bug("evictable_slots is not the number of slots of idle chunks");
  if (storing != state.storing_slots)
    return Bug("storing_slots is not the number of slots of storing chunks");
  if (std::ssize(state.chunks) != manager.num_chunks())
    return Bug("num_chunks is not the number of chunks");
  return Status();
}

}  // namespace

OffloadManager::Chunk OffloadManager::Impl::Describe(const ChunkEntry& entry) const {
  Chunk chunk = {.key = entry.key, .slots = {}, .readers = entry.readers};
  AppendSlots(entry, chunk.slots);
  return chunk;
}

OffloadManager::State OffloadManager::Inspect() const {
  State state;
  state.slots_used_once = impl_->slots.num_used_once();
  impl_->slots.ForEachFree([&](uint32_t slot) { state.free_slots.push_back(SlotId(slot)); });
  state.evictable_slots = impl_->evictable_slots;
  state.storing_slots = impl_->storing_slots;
  impl_->policy->Inspect([&](const ChunkEntry& entry) { return impl_->Describe(entry); }, state);
  impl_->table.ForEach([&](const ChunkEntry& entry) {
    if (entry.present() && entry.list == nullptr) state.chunks.push_back(impl_->Describe(entry));
  });
  state.lookup_counts = impl_->filter.List();
  return state;
}

Status OffloadManager::CheckInvariants() const {
  const State state = Inspect();
  if (state.slots_used_once > num_slots()) return Bug("slots_used_once is above num_slots");
  if (Status status = CheckSlots(state); !status.ok()) return status;
  if (Status status = CheckCounters(*this, state); !status.ok()) return status;
  const size_t listed = state.chunks.size() + state.ghosts_t1.size() + state.ghosts_t2.size();
  if (listed != impl_->table.size())
    return Bug("the table has an entry of an evicted chunk that is in no ghost list");
  return Status();
}

}  // namespace kvcast
