// OffloadManager: which chunks the host memory tier holds, and where.
//
// The scheduler's half of KV offload; it moves no bytes. Terms and rules follow vLLM's CPU
// offloading manager: a chunk is what one key names, the KV of one group over some tokens; storing
// moves it from GPU to host memory, loading moves it back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/spec/cache_spec.h"
#include "kvcast/spec/offload_rules.h"

namespace kvcast {

// Names a chunk: the block hash of its last hash unit, and its group. The hash is chained, so it
// names the whole prefix.
struct OffloadKey {
  Digest digest;
  GroupIdx group;

  friend bool operator==(const OffloadKey&, const OffloadKey&) = default;
};

// The engine's byte form of a key: the bytes of the hash, then the group as 4 bytes, big-endian.
struct OffloadKeyBytes {
  std::array<uint8_t, 36> data{};
  uint8_t size = 0;

  std::span<const uint8_t> bytes() const { return {data.data(), size}; }
};
OffloadKeyBytes ToBytes(const OffloadKey& key);
// Malformed: fewer than 5 or more than 36 bytes.
Result<OffloadKey> ParseOffloadKey(std::span<const uint8_t> bytes);

// A request, numbered by the caller.
using OffloadRequestId = StrongId<struct OffloadRequestIdTag, uint64_t>;

enum class EvictionPolicyKind : uint8_t { kLru, kArc };

struct OffloadConfig {
  // Host memory, in bytes.
  int64_t capacity_bytes = 0;
  // By group: bytes of one chunk, over all layers of the group, and all workers that share the
  // memory. Groups may differ.
  std::vector<int64_t> chunk_bytes;
  // Slots start and end at multiples of this. A power of 2.
  int64_t page_bytes = 4096;
  // 0: the largest slot with which no chunk wastes a page, which is the greatest common divisor of
  // the chunks' pages. A larger one, in whole pages, keeps chunks in fewer pieces and wastes less
  // than itself on each.
  int64_t slot_bytes = 0;
  // Evict so much more than is needed whenever something has to be: what is free then has longer
  // runs of slots, so that copies are fewer and larger, and that much of the capacity is not used.
  int64_t evict_ahead_bytes = 0;
  EvictionPolicyKind policy = EvictionPolicyKind::kLru;
  // Chunks are stored once this many requests have looked them up; from v0.32 on, once they have
  // been offered for storing as often. Below 2: all are.
  int64_t store_threshold = 0;
  // Keys that are counted for it; beyond, the one that was counted least recently is forgotten.
  int64_t max_tracker_size = 64000;
  bool enable_events = true;
  std::string medium = kMediumCpu;  // of the events
  // Whose rules of age apply, and of store_threshold: see OffloadUse.
  EngineRules rules = EngineRules::kMain2026August;
  // Do what vLLM's manager does where this one does better:
  //   a slot has the size of the largest chunk, and every chunk takes one
  //   slots that were given back last are taken first, however they lie
  //   every lookup counts for store_threshold, repeated ones of a waiting request too; from v0.32
  //     on every offer does
  //   the chunks of a job get older first to last, so that a prefix loses its beginning first,
  //     until v0.32
  //   ARC finds no victim where only T1 has one and T1 is smaller than its target, until v0.32
  //   a reset is not announced
  bool compatible = false;
};

// What changed for readers of the tier, in order of occurrence.
struct OffloadEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  std::vector<OffloadKey> keys;  // of any groups, in order; empty if kCleared

  friend bool operator==(const OffloadEvent&, const OffloadEvent&) = default;
};

// The chunks to store, and where. Kept by the caller and used again: its lists keep their memory.
struct StorePlan {
  std::vector<OffloadKey> keys;  // to store: those asked for, less what is there already
  // The slots of keys[0], then those of keys[1], ...: OffloadManager::slots_per_chunk each.
  std::vector<SlotId> slots;
  std::vector<OffloadKey> evicted;  // whose slots were taken
};

// Chunks that PrepareStore was asked to find room for, one sample a call.
struct AllocationSizes {
  static constexpr std::array<int64_t, 10> kBounds = {1,    4,    16,    64,    256,
                                                      1024, 4096, 16384, 65536, 262144};
  // counts[i]: samples of at most kBounds[i] and more than the bound before; the last one: more.
  std::array<int64_t, kBounds.size() + 1> counts{};
  int64_t count = 0;
  int64_t sum = 0;

  void Add(int64_t size);
  friend bool operator==(const AllocationSizes&, const AllocationSizes&) = default;
};

// The request of a store or load. From the rules of v0.32 on the age of a chunk is that of the
// requests that used it: stores and loads are noted, and charged when the request finishes, once
// for each chunk, from the end of the prefix to its beginning, which becomes the most recent.
//   LRU, v0.33: a chunk that is stored gets the rank of its request, which all stores of a request
//     share, and in it the place of its end; a longer prefix is evicted first. FinishRequest gives
//     every chunk that the request used a new rank. A load changes no rank when it ends.
//   LRU, v0.32: when the request finishes its chunks become the most recent; as before, a chunk
//     also does when its store or load ends.
//   ARC: chunks that the request used, did not store itself, and that are readable go to T2. What
//     is to be stored and was evicted before moves the target, once a request and chunk, before
//     victims are chosen.
// store_threshold counts what PrepareStore is asked for; what can be read already passes in any
// case, and no key of the offer is forgotten for another one of it.
struct OffloadUse {
  OffloadRequestId request;
  std::span<const int64_t> ends;  // by key: tokens of the prefix that its chunk ends
};

struct OffloadStats {
  // Shares of the capacity in 0..1; 0 where there is none.
  double usage = 0;        // held by stores and loads under way: what cannot be evicted
  double write_usage = 0;  // by stores
  double read_usage = 0;   // by loads
  // Since the last call.
  AllocationSizes allocation_sizes;
  int64_t stores_skipped = 0;  // keys below store_threshold
};

// A chunk goes through
//
//             PrepareStore             CompleteStore ok        PrepareLoad
//    absent ----------------> storing ------------------> idle ------------> loading (n readers)
//       ^                        | CompleteStore failed     | ^                 |
//       +------------------------+<-------- evicted --------+ +-- CompleteLoad -+
//
// and only idle chunks are evicted. Same calls, same results: nothing depends on hash order.
// Every call costs O(1) per key and slot (O(log n) with LRU from v0.32 on), but for entries that an
// eviction passes over; besides growth of lists nothing is allocated per key.
// Thread-compatible: one scheduler thread owns the manager.
class OffloadManager {
 public:
  // Every error names the field.
  static Result<std::unique_ptr<OffloadManager>> Create(const OffloadConfig& config);
  ~OffloadManager();

  // Counts for store_threshold, once per request, until v0.32; changes nothing else.
  LookupResult Lookup(const OffloadKey& key, OffloadRequestId request);

  // Adds a reader to every chunk and appends their slots, in order of the keys. Not ok, and nothing
  // changed: kFailedPrecondition if Lookup of one would not be a hit. `use`: as of PrepareStore.
  Status PrepareLoad(std::span<const OffloadKey> keys, std::vector<SlotId>& slots,
                     const OffloadUse& use = {});
  // Takes the readers away again. Not ok, and nothing changed: kFailedPrecondition if a chunk has
  // fewer readers.
  Status CompleteLoad(std::span<const OffloadKey> keys);

  // The chunks were used: they become the most recent, the first key most of all, so that the end
  // of a prefix is evicted before its beginning. Absent ones teach ARC what it evicted too early.
  // From v0.32 on nothing: see OffloadUse.
  void Touch(std::span<const OffloadKey> keys);

  // Reserves slots for the keys that are absent and have reached store_threshold, evicting as
  // needed, but none of the given keys. Takes all that is asked for or, not ok, changes nothing:
  // kExhausted if what may be evicted does not suffice (the counts of store_threshold, and what ARC
  // learns of ghosts, stay), kInvalidArgument for a group that does not exist, and from v0.32 on
  // where `use` has not one end a key. Nothing left to store is ok, with an empty plan.
  Status PrepareStore(std::span<const OffloadKey> keys, StorePlan& plan,
                      const OffloadUse& use = {});
  // The bytes of reserved chunks are there, or will never be. Keys that are not being stored are
  // ignored, so a part of a job may be completed, and a job twice.
  void CompleteStore(std::span<const OffloadKey> keys, bool success);

  // Charges the chunks that the request used (OffloadUse), and forgets its counts. To
  // be called once, when it stores and loads nothing more; copies may still be under way.
  void FinishRequest(OffloadRequestId request);

  // Drops all chunks, those of stores and loads under way too: the caller must have ended them,
  // and must not complete them any more. The counts of store_threshold stay.
  void Reset();

  // What happened since the last call. An eviction stands before the store that took its slots.
  // To be called every step: events wait without bound.
  std::vector<OffloadEvent> TakeEvents();
  const OffloadConfig& config() const;
  OffloadStats TakeStats();

  int64_t slot_bytes() const;
  int64_t num_slots() const;
  // REQUIRES: the group exists.
  int64_t slots_per_chunk(GroupIdx group) const;
  // Chunks present, in any state.
  int64_t num_chunks() const;

  // The whole state, for tests, conformance runs and debugging.
  struct Chunk {
    OffloadKey key;
    std::vector<SlotId> slots;
    int64_t readers = 0;  // -1: being stored
    friend bool operator==(const Chunk&, const Chunk&) = default;
  };
  struct State {
    int64_t slots_used_once = 0;        // ever handed out
    std::vector<SlotId> free_slots;     // of them, the next one to be handed out first
    int64_t evictable_slots = 0;        // of idle chunks
    int64_t storing_slots = 0;          // of chunks that are being stored
    std::vector<Chunk> chunks;          // LRU: the idle ones, oldest first, then the others;
                                        // ARC: T1, then T2, oldest first
    int64_t t1_chunks = 0;              // ARC: how many of them are T1's
    double t1_target = 0;               // ARC: what T1 may hold, in slots
    std::vector<OffloadKey> ghosts_t1;  // ARC: keys that were evicted from T1, oldest first
    std::vector<OffloadKey> ghosts_t2;  // ARC: from T2
    // Of store_threshold, oldest first.
    std::vector<std::pair<OffloadKey, int64_t>> lookup_counts;
  };
  State Inspect() const;
  // Not ok: a bug in kvcast; says what contradicts what.
  Status CheckInvariants() const;

 private:
  class Impl;
  explicit OffloadManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast

template <>
struct std::hash<kvcast::OffloadKey> {
  size_t operator()(const kvcast::OffloadKey& key) const noexcept {
    uint64_t head;
    std::memcpy(&head, key.digest.data.data(), sizeof(head));
    return head ^ ((uint64_t{key.group.value} + 1) * 0x9E3779B97F4A7C15u);
  }
};
