// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/manager_impl.h"

#include <utility>

#include "src/base/check.h"
#include "src/offload/manager/arc_policy.h"
#include "src/offload/manager/lru_policy.h"

namespace kvcast {

using offload::ChunkEntry;

namespace {

std::unique_ptr<offload::EvictionPolicy> MakePolicy(const OffloadConfig& config,
                                                    offload::ChunkTable& table, int64_t num_slots) {
  if (config.policy == EvictionPolicyKind::kArc) {
    const bool falls_back = !config.compatible || config.rules >= EngineRules::kV032;
    return std::make_unique<offload::ArcPolicy>(table, num_slots, falls_back);
  }
  if (config.rules < EngineRules::kV032) return std::make_unique<offload::LruPolicy>(table);
  return std::make_unique<offload::RankedLruPolicy>(table, config.rules >= EngineRules::kV033);
}

}  // namespace

OffloadManager::Impl::Impl(const OffloadConfig& manager_config, offload::OffloadGeometry slot_sizes)
    : config(manager_config),
      geometry(std::move(slot_sizes)),
      slots(static_cast<uint32_t>(geometry.num_slots), config.compatible),
      filter(config.store_threshold, config.max_tracker_size, !config.compatible),
      policy(MakePolicy(config, table, geometry.num_slots)) {}

bool OffloadManager::Impl::Passes(const OffloadKey& key) const {
  if (filter.Passes(key)) return true;
  if (!ages_by_request()) return false;
  const uint32_t chunk = table.Find(key);
  return chunk != offload::kNoChunk && table[chunk].present();
}

int64_t OffloadManager::Impl::ChooseChunks(std::span<const OffloadKey> keys,
                                           OffloadRequestId request) {
  if (ages_by_request()) filter.CountOffer(keys, request);
  ++mark;
  chunks.clear();
  int64_t needed = 0;
  for (const OffloadKey& key : keys) {
    if (!Passes(key)) {
      ++stores_skipped;
      continue;
    }
    const uint32_t chunk = table.FindOrAdd(key, geometry.slots_per_chunk[key.group.value]);
    ChunkEntry& entry = table[chunk];
    if (std::exchange(entry.mark, mark) == mark || entry.present()) continue;
    chunks.push_back(chunk);
    needed += entry.num_slots;
  }
  return needed;
}

void OffloadManager::Impl::NoteMisses(OffloadRequestId request) {
  for (size_t i = chunks.size(); i > 0; --i) {
    const uint32_t chunk = chunks[i - 1];
    if (uses.NoteMiss(request, table[chunk].key)) policy->OnStoreMiss(chunk);
  }
}

void OffloadManager::Impl::NoteOffer(std::span<const OffloadKey> keys, const OffloadUse& use) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t chunk = table.Find(keys[i]);
    if (chunk == offload::kNoChunk) continue;
    const ChunkEntry& entry = table[chunk];
    if (entry.readers >= 0) {
      NoteUse(chunk, use.request, use.ends[i], offload::ChunkUse::kReused);
    } else if (!entry.present() && entry.mark == mark) {
      NoteUse(chunk, use.request, use.ends[i], offload::ChunkUse::kOffered);
    }
  }
}

void OffloadManager::Impl::NoteUse(uint32_t chunk, OffloadRequestId request, int64_t end,
                                   offload::ChunkUse kind) {
  if (!uses.Note(request, {table[chunk].key, end, kind})) return;
  const uint64_t rank = uses.RankOf(request);
  if (table[chunk].present()) policy->OnAccess(chunk, rank, end);
}

void OffloadManager::Impl::NoteStores(std::span<const OffloadKey> keys,
                                      std::span<const OffloadKey> stored, const OffloadUse& use) {
  for (size_t i = 0; i < keys.size() && !stored.empty(); ++i) {
    if (keys[i] != stored.front()) continue;
    stored = stored.subspan(1);
    uses.Note(use.request, {keys[i], use.ends[i], offload::ChunkUse::kStored});
    ChunkEntry& entry = table[table.Find(keys[i])];
    entry.rank = config.rules >= EngineRules::kV033 ? uses.RankOf(use.request) : uses.NewRank();
    entry.end = use.ends[i];
  }
}

void OffloadManager::Impl::ForgetChosen() {
  for (const uint32_t chunk : chunks) {
    if (table[chunk].list == nullptr) table.Erase(chunk);
  }
}

bool OffloadManager::Impl::MakeRoom(int64_t missing, StorePlan& plan) {
  if (missing <= 0) return true;
  const auto choose_victims = [&](int64_t count) {
    victims.clear();
    return count <= evictable_slots && policy->ChooseVictims(count, mark, victims);
  };
  const int64_t ahead = config.evict_ahead_bytes / geometry.slot_bytes;
  if ((ahead == 0 || !choose_victims(missing + ahead)) && !choose_victims(missing)) return false;
  Evict(plan);
  return true;
}

void OffloadManager::Impl::Evict(StorePlan& plan) {
  for (const uint32_t chunk : victims) {
    plan.evicted.push_back(table[chunk].key);
    evictable_slots -= table[chunk].num_slots;
    ReleaseSlots(table[chunk]);
  }
  AddEvent(OffloadEvent::Kind::kRemoved, plan.evicted);
  forgotten.clear();
  policy->OnEvicted(victims, forgotten);
  for (const uint32_t chunk : forgotten) {
    // A forgotten chunk may be one that this plan stores. The table keeps the entry of such a
    // chunk.
    if (table[chunk].mark != mark) table.Erase(chunk);
  }
}

void OffloadManager::Impl::Reserve(int64_t needed, StorePlan& plan) {
  slots.Announce(needed);
  for (const uint32_t chunk : chunks) {
    ChunkEntry& entry = table[chunk];
    entry.readers = ChunkEntry::kStoring;
    entry.first_slot = slots.Take(entry.num_slots);
    storing_slots += entry.num_slots;
    plan.keys.push_back(entry.key);
    AppendSlots(entry, plan.slots);
  }
  num_chunks += std::ssize(chunks);
  ForEachByAge(chunks, [&](uint32_t chunk) { policy->OnReserved(chunk); });
}

void OffloadManager::Impl::AppendSlots(const ChunkEntry& entry, std::vector<SlotId>& out) const {
  slots.ForEach(entry.first_slot, [&](uint32_t slot) { out.push_back(SlotId(slot)); });
}

void OffloadManager::Impl::ReleaseSlots(ChunkEntry& entry) {
  slots.Release(std::exchange(entry.first_slot, offload::kNoSlot));
  entry.readers = ChunkEntry::kAbsent;
  --num_chunks;
}

void OffloadManager::Impl::BecomeIdle() {
  ForEachByAge(chunks, [&](uint32_t chunk) {
    evictable_slots += table[chunk].num_slots;
    policy->OnIdle(chunk);
  });
}

void OffloadManager::Impl::AddEvent(OffloadEvent::Kind kind, std::span<const OffloadKey> keys) {
  if (config.enable_events) events.push_back({kind, {keys.begin(), keys.end()}});
}

double OffloadManager::Impl::Share(int64_t part) const {
  if (geometry.num_slots == 0) return 0;
  return static_cast<double>(part) / static_cast<double>(geometry.num_slots);
}

}  // namespace kvcast
