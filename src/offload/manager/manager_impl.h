// The state of an OffloadManager, and the steps that its calls share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "src/offload/manager/chunk_table.h"
#include "src/offload/manager/eviction_policy.h"
#include "src/offload/manager/offload_geometry.h"
#include "src/offload/manager/request_uses.h"
#include "src/offload/manager/reuse_filter.h"
#include "src/offload/manager/slot_pool.h"

namespace kvcast {

class OffloadManager::Impl {
 public:
  Impl(const OffloadConfig& config, offload::OffloadGeometry geometry);

  // Steps of PrepareStore. ChooseChunks sets `chunks` to the absent chunks to store, and adds their
  // entries to the table. It returns the number of slots that these chunks need.
  int64_t ChooseChunks(std::span<const OffloadKey> keys, OffloadRequestId request);
  bool Passes(const OffloadKey& key) const;
  bool MakeRoom(int64_t missing, StorePlan& plan);
  void Evict(StorePlan& plan);
  void Reserve(int64_t needed, StorePlan& plan);
  // Drops the table entries that ChooseChunks added.
  void ForgetChosen();
  // True from v0.32 on: the uses of a request decide the age of its chunks; see OffloadUse.
  bool ages_by_request() const { return config.rules >= EngineRules::kV032; }
  void NoteMisses(OffloadRequestId request);
  // Records the uses of an offer: the readable chunks, and the chunks to store.
  void NoteOffer(std::span<const OffloadKey> keys, const OffloadUse& use);
  void NoteUse(uint32_t chunk, OffloadRequestId request, int64_t end, offload::ChunkUse kind);
  // `stored`: the part of `keys` that the request stores, in the same order.
  void NoteStores(std::span<const OffloadKey> keys, std::span<const OffloadKey> stored,
                  const OffloadUse& use);

  void AppendSlots(const offload::ChunkEntry& entry, std::vector<SlotId>& out) const;
  void ReleaseSlots(offload::ChunkEntry& entry);
  // Informs the policy that `chunks` are idle.
  void BecomeIdle();
  void AddEvent(OffloadEvent::Kind kind, std::span<const OffloadKey> keys);
  // Calls `visit` with the numbers, from the oldest to the newest. The order of age depends on
  // OffloadConfig::compatible.
  template <typename Visit>
  void ForEachByAge(const std::vector<uint32_t>& numbers, const Visit& visit) const {
    if (config.compatible) {
      for (size_t i = 0; i < numbers.size(); ++i) visit(numbers[i]);
    } else {
      for (size_t i = numbers.size(); i > 0; --i) visit(numbers[i - 1]);
    }
  }
  Chunk Describe(const offload::ChunkEntry& entry) const;
  double Share(int64_t slots) const;

  const OffloadConfig config;
  const offload::OffloadGeometry geometry;
  offload::ChunkTable table;
  offload::SlotPool slots;
  offload::ReuseFilter filter;
  offload::RequestUses uses;
  const std::unique_ptr<offload::EvictionPolicy> policy;

  int64_t evictable_slots = 0;
  int64_t storing_slots = 0;
  int64_t num_chunks = 0;
  uint64_t mark = 0;  // a new value for each PrepareStore
  std::vector<OffloadEvent> events;
  AllocationSizes allocation_sizes;
  int64_t stores_skipped = 0;

  // Scratch data of the current call; members so that their memory is reused.
  std::vector<uint32_t> chunks;
  std::vector<uint32_t> victims;
  std::vector<uint32_t> forgotten;
  std::vector<OffloadKey> announced;
};

}  // namespace kvcast
