// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_manager.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/offload/manager/manager_impl.h"

namespace kvcast {

using offload::ChunkEntry;
using offload::kNoChunk;

namespace {

Status CheckConfig(const OffloadConfig& config) {
  if (config.store_threshold < 0) {
    return {StatusCode::kInvalidArgument, "store_threshold must not be negative"};
  }
  if (config.evict_ahead_bytes < 0 || config.evict_ahead_bytes > config.capacity_bytes) {
    return {StatusCode::kInvalidArgument, "evict_ahead_bytes must be in 0..capacity_bytes"};
  }
  if (config.max_tracker_size < 1 || config.max_tracker_size > int64_t{1} << 30) {
    return {StatusCode::kInvalidArgument, "max_tracker_size must be in 1..2^30"};
  }
  return Status();
}

Status CheckEnds(bool by_request, std::span<const OffloadKey> keys, const OffloadUse& use) {
  if (!by_request || use.ends.size() == keys.size()) return Status();
  return {StatusCode::kInvalidArgument, "use.ends must have one entry per key"};
}

}  // namespace

OffloadManager::OffloadManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OffloadManager::~OffloadManager() = default;

Result<std::unique_ptr<OffloadManager>> OffloadManager::Create(const OffloadConfig& config) {
  if (Status status = CheckConfig(config); !status.ok()) return status;
  auto geometry = offload::OffloadGeometry::Create(config);
  if (!geometry.ok()) return geometry.status();
  return std::unique_ptr<OffloadManager>(
      new OffloadManager(std::make_unique<Impl>(config, std::move(geometry).value())));
}

LookupResult OffloadManager::Lookup(const OffloadKey& key, OffloadRequestId request) {
  if (!impl_->ages_by_request()) impl_->filter.Count(key, request);
  const uint32_t chunk = impl_->table.Find(key);
  if (chunk == kNoChunk || !impl_->table[chunk].present()) return LookupResult::kMiss;
  return impl_->table[chunk].readers == ChunkEntry::kStoring ? LookupResult::kPending
                                                             : LookupResult::kHit;
}

Status OffloadManager::PrepareLoad(std::span<const OffloadKey> keys, std::vector<SlotId>& slots,
                                   const OffloadUse& use) {
  if (Status status = CheckEnds(impl_->ages_by_request(), keys, use); !status.ok()) return status;
  impl_->chunks.clear();
  for (const OffloadKey& key : keys) {
    const uint32_t chunk = impl_->table.Find(key);
    if (chunk == kNoChunk || impl_->table[chunk].readers < 0) {
      return {StatusCode::kFailedPrecondition, "a chunk to load is not readable in host memory"};
    }
    impl_->chunks.push_back(chunk);
  }
  for (const uint32_t chunk : impl_->chunks) {
    ChunkEntry& entry = impl_->table[chunk];
    if (entry.readers++ == 0) {
      impl_->policy->OnLoading(chunk);
      impl_->evictable_slots -= entry.num_slots;
    }
    impl_->AppendSlots(entry, slots);
  }
  if (impl_->ages_by_request()) {
    for (size_t i = 0; i < keys.size(); ++i) {
      impl_->NoteUse(impl_->chunks[i], use.request, use.ends[i], offload::ChunkUse::kReused);
    }
  }
  return Status();
}

Status OffloadManager::CompleteLoad(std::span<const OffloadKey> keys) {
  size_t ended = 0;
  impl_->chunks.clear();
  for (; ended < keys.size(); ++ended) {
    const uint32_t chunk = impl_->table.Find(keys[ended]);
    if (chunk == kNoChunk || impl_->table[chunk].readers <= 0) break;
    if (--impl_->table[chunk].readers == 0) impl_->chunks.push_back(chunk);
  }
  if (ended < keys.size()) {
    for (const OffloadKey& key : keys.first(ended)) {
      ++impl_->table[impl_->table.Find(key)].readers;
    }
    return {StatusCode::kFailedPrecondition, "a chunk of the completed load has no reader"};
  }
  impl_->BecomeIdle();
  return Status();
}

void OffloadManager::Touch(std::span<const OffloadKey> keys) {
  if (impl_->ages_by_request()) return;
  for (size_t i = keys.size(); i > 0; --i) {
    const uint32_t chunk = impl_->table.Find(keys[i - 1]);
    if (chunk != kNoChunk) impl_->policy->OnTouch(chunk);
  }
}

Status OffloadManager::PrepareStore(std::span<const OffloadKey> keys, StorePlan& plan,
                                    const OffloadUse& use) {
  plan.keys.clear();
  plan.chunks_to_store = 0;
  plan.slots.clear();
  plan.evicted.clear();
  for (const OffloadKey& key : keys) {
    if (key.group.value >= impl_->geometry.slots_per_chunk.size()) {
      return {StatusCode::kInvalidArgument,
              "group " + std::to_string(key.group.value) + " has no entry in chunk_bytes"};
    }
  }
  if (Status status = CheckEnds(impl_->ages_by_request(), keys, use); !status.ok()) return status;
  const bool by_request = impl_->ages_by_request();
  const int64_t needed = impl_->ChooseChunks(keys, use.request);
  plan.chunks_to_store = std::ssize(impl_->chunks);
  if (by_request) {
    impl_->NoteMisses(use.request);
    impl_->NoteOffer(keys, use);
  }
  if (impl_->chunks.empty()) return Status();
  impl_->allocation_sizes.Add(plan.chunks_to_store);
  if (!impl_->MakeRoom(needed - impl_->slots.num_available(), plan)) {
    impl_->ForgetChosen();
    return {StatusCode::kExhausted, "not enough chunks can be evicted"};
  }
  impl_->Reserve(needed, plan);
  if (by_request) impl_->NoteStores(keys, plan.keys, use);
  return Status();
}

void OffloadManager::CompleteStore(std::span<const OffloadKey> keys, bool success) {
  impl_->chunks.clear();
  impl_->announced.clear();
  for (const OffloadKey& key : keys) {
    const uint32_t chunk = impl_->table.Find(key);
    if (chunk == kNoChunk || impl_->table[chunk].readers != ChunkEntry::kStoring) continue;
    ChunkEntry& entry = impl_->table[chunk];
    impl_->storing_slots -= entry.num_slots;
    if (success) {
      entry.readers = 0;
      impl_->chunks.push_back(chunk);
      impl_->announced.push_back(key);
    } else {
      impl_->ReleaseSlots(entry);
      impl_->policy->OnStoreFailed(chunk);
      impl_->table.Erase(chunk);
    }
  }
  impl_->BecomeIdle();
  if (!impl_->announced.empty()) impl_->AddEvent(OffloadEvent::Kind::kStored, impl_->announced);
}

void OffloadManager::FinishRequest(OffloadRequestId request) {
  impl_->filter.FinishRequest(request);
  for (const offload::RequestUses::Use& use : impl_->uses.Take(request)) {
    const uint32_t chunk = impl_->table.Find(use.key);
    if (chunk == kNoChunk || !impl_->table[chunk].present()) continue;
    impl_->policy->OnRequestFinished(chunk, use.use, impl_->uses.NewRank());
  }
}

void OffloadManager::Reset() {
  impl_->policy->Clear();
  impl_->table.Clear();
  impl_->slots.Clear();
  impl_->uses.Clear();
  impl_->evictable_slots = impl_->storing_slots = impl_->num_chunks = 0;
  if (!impl_->config.compatible) impl_->AddEvent(OffloadEvent::Kind::kCleared, {});
}

std::vector<OffloadEvent> OffloadManager::TakeEvents() { return std::exchange(impl_->events, {}); }

OffloadStats OffloadManager::TakeStats() {
  const int64_t used_slots = impl_->slots.num_slots() - impl_->slots.num_available();
  OffloadStats stats;
  stats.usage = impl_->Share(used_slots - impl_->evictable_slots);
  stats.write_usage = impl_->Share(impl_->storing_slots);
  stats.read_usage = std::max(stats.usage - stats.write_usage, 0.0);
  stats.allocation_sizes = std::exchange(impl_->allocation_sizes, {});
  stats.stores_skipped = std::exchange(impl_->stores_skipped, 0);
  return stats;
}

const OffloadConfig& OffloadManager::config() const { return impl_->config; }
int64_t OffloadManager::slot_bytes() const { return impl_->geometry.slot_bytes; }
int64_t OffloadManager::num_slots() const { return impl_->geometry.num_slots; }
int64_t OffloadManager::num_chunks() const { return impl_->num_chunks; }

int64_t OffloadManager::slots_per_chunk(GroupIdx group) const {
  KV_CHECK(group.value < impl_->geometry.slots_per_chunk.size());
  return impl_->geometry.slots_per_chunk[group.value];
}

}  // namespace kvcast
