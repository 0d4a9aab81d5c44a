// OffloadManager: records the chunks that the host memory tier holds, and their slots.
//
// It is the scheduler's part of KV offload, and copies no bytes. Terms and rules follow vLLM's CPU
// offloading manager. A chunk is the KV of one group over a span of tokens; one key names it. A
// store copies a chunk from the GPU to host memory. A load copies it back.
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

// Names a chunk: the block hash of the chunk's last hash unit, and the group. The hash is chained;
// the key therefore names the whole prefix.
struct OffloadKey {
  Digest digest;
  GroupIdx group;

  friend bool operator==(const OffloadKey&, const OffloadKey&) = default;
};

// The byte form of a key in the engine: the bytes of the hash, then the group as 4 bytes,
// big-endian.
struct OffloadKeyBytes {
  std::array<uint8_t, 36> data{};
  uint8_t size = 0;

  std::span<const uint8_t> bytes() const { return {data.data(), size}; }
};
OffloadKeyBytes ToBytes(const OffloadKey& key);
// Error: kMalformed for fewer than 5 or more than 36 bytes.
Result<OffloadKey> ParseOffloadKey(std::span<const uint8_t> bytes);

// Number of a request. The caller assigns it.
using OffloadRequestId = StrongId<struct OffloadRequestIdTag, uint64_t>;

enum class EvictionPolicyKind : uint8_t { kLru, kArc };

struct OffloadConfig {
  // Size of the host memory in bytes.
  int64_t capacity_bytes = 0;
  // By group: bytes of one chunk, over all layers of the group and all workers that share the
  // memory. The sizes may differ between groups.
  std::vector<int64_t> chunk_bytes;
  // Slots start and end at multiples of this number of bytes. A power of 2.
  int64_t page_bytes = 4096;
  // Bytes per slot, in whole pages. 0: the greatest common divisor of the chunk sizes in pages.
  // This is the largest slot size with which every chunk wastes less than one page. With a larger
  // slot size, chunks have fewer pieces, and every chunk wastes less than one slot.
  int64_t slot_bytes = 0;
  // Additional number of bytes to evict whenever an eviction is necessary. The free slots then form
  // longer runs, and copies are fewer and larger. This part of the capacity is free until later
  // stores use it.
  int64_t evict_ahead_bytes = 0;
  EvictionPolicyKind policy = EvictionPolicyKind::kLru;
  // Minimum number of requests that must look up a chunk before the chunk is stored. From v0.32 on:
  // minimum number of requests that must offer the chunk for storing. Below 2: all chunks are
  // stored.
  int64_t store_threshold = 0;
  // Maximum number of keys with a count for store_threshold. Beyond this number, the key that was
  // counted least recently is dropped.
  int64_t max_tracker_size = 64000;
  bool enable_events = true;
  std::string medium = kMediumCpu;  // medium of the events
  // The rules for the age of chunks and for store_threshold; see OffloadUse. Must equal
  // CacheConfig::rules of the engine (the defaults differ).
  EngineRules rules = EngineRules::kMain2026August;
  // True: behave as vLLM's manager in the cases in which this manager differs:
  // - A slot has the size of the largest chunk, and every chunk uses one slot.
  // - Slots that were freed last are used first, in any order of addresses.
  // - Every lookup counts for store_threshold, including repeated lookups of a waiting request.
  //   From v0.32 on, every offer counts.
  // - Before v0.32: the chunks of a job age from first to last, so that a prefix loses its start
  //   first.
  // - Before v0.32: ARC finds no victim if only T1 has a victim and T1 is smaller than its target.
  // - A reset has no event.
  bool compatible = false;
};

// One change of the tier. Lists of changes are in order of occurrence.
struct OffloadEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  // kStored: the keys that one CompleteStore stored, in the order of the call. kRemoved: the keys
  // that one PrepareStore evicted, in the order of eviction. The keys may belong to several groups.
  // Empty for kCleared.
  std::vector<OffloadKey> keys;

  friend bool operator==(const OffloadEvent&, const OffloadEvent&) = default;
};

// The result of PrepareStore. The caller owns it and may reuse it; its lists then keep their
// memory.
struct StorePlan {
  // The keys to store: the keys of the call that are absent and have reached store_threshold.
  std::vector<OffloadKey> keys;
  // The slots of keys[0], then the slots of keys[1], and so on; OffloadManager::slots_per_chunk
  // slots each.
  std::vector<SlotId> slots;
  std::vector<OffloadKey> evicted;  // keys of the chunks that the call evicted
  // The number of chunks to store. Also set if the call returns kExhausted.
  int64_t chunks_to_store = 0;
};

// Histogram of the number of chunks for which PrepareStore had to find space. One sample for each
// call with chunks to store.
struct AllocationSizes {
  static constexpr std::array<int64_t, 10> kBounds = {1,    4,    16,    64,    256,
                                                      1024, 4096, 16384, 65536, 262144};
  // counts[i]: samples in (kBounds[i - 1], kBounds[i]]. The last element: samples above all bounds.
  std::array<int64_t, kBounds.size() + 1> counts{};
  int64_t count = 0;
  int64_t sum = 0;

  void Add(int64_t size);
  friend bool operator==(const AllocationSizes&, const AllocationSizes&) = default;
};

// The request of a store or load. By the rules from v0.32 on, the age of a chunk depends on the
// requests that used it. A request uses these chunks:
// - the chunks that it loads
// - the readable chunks that it offers for storing
// - the absent chunks that it offers for storing and that have reached store_threshold, even if
//   there is no space for these chunks
//
// The manager records these uses, and applies them when the request finishes: once per chunk that
// is then present, from the end of the prefix to its start. The first chunk of the prefix is then
// the most recent chunk.
// - LRU: the chunk with the smallest rank is evicted first. Among equal ranks, the chunk of the
//   longest prefix is evicted first. FinishRequest gives a new rank of its own to every chunk that
//   the request used. The end of a store or load changes no rank.
// - LRU, v0.32: a stored chunk gets a new rank of its own.
// - LRU, v0.33: a stored chunk gets the rank of its request. All stores of a request have the same
//   rank. The first use of a present chunk raises the rank of the chunk to the rank of the request.
// - ARC: a chunk moves to T2 if the request found the chunk readable before the request itself
//   stored the chunk. If an evicted chunk is stored again, the target changes before victims are
//   selected, once per request and chunk.
//
// PrepareStore counts its keys for store_threshold. Only absent chunks need the threshold. A key of
// the call never displaces the count of another key of the same call.
struct OffloadUse {
  OffloadRequestId request;
  std::span<const int64_t> ends;  // by key: tokens of the prefix that ends with the chunk
};

struct OffloadStats {
  // Shares of the capacity, in 0..1; 0 without capacity. `usage` is the share of the chunks that
  // cannot be evicted, because their stores or loads are in progress.
  double usage = 0;
  double write_usage = 0;  // share of stores
  double read_usage = 0;   // share of loads
  // Counters since the last call of TakeStats.
  AllocationSizes allocation_sizes;
  int64_t stores_skipped = 0;  // keys below store_threshold
};

// The states of a chunk are
//
//             PrepareStore             CompleteStore ok        PrepareLoad
//    absent ----------------> storing ------------------> idle ------------> loading (n readers)
//       ^                        | CompleteStore failed     | ^                 |
//       +------------------------+<-------- evicted --------+ +-- CompleteLoad -+
//
// Only idle chunks are evicted. The same calls give the same results: no result depends on hash
// order.
//
// Every call costs O(1) per key and slot, plus the entries that an eviction skips. There are three
// exceptions: LRU from v0.32 on costs O(log n) per key, a run of free slots costs O(log n), and
// FinishRequest sorts the keys of the request. Apart from the growth of lists, no call allocates
// per key.
//
// Thread-compatible: one scheduler thread owns the manager.
class OffloadManager {
 public:
  // Error: kInvalidArgument; the message names the field.
  static Result<std::unique_ptr<OffloadManager>> Create(const OffloadConfig& config);
  ~OffloadManager();

  // Returns the state of a chunk. Before v0.32 the call also counts for store_threshold, once per
  // request. The call has no other effect.
  LookupResult Lookup(const OffloadKey& key, OffloadRequestId request);

  // Adds a reader to every chunk, and appends the slots of the chunks in the order of `keys`.
  // Errors, without any change: kFailedPrecondition if Lookup of one key would not return kHit;
  // kInvalidArgument for a wrong `use`, as in PrepareStore.
  Status PrepareLoad(std::span<const OffloadKey> keys, std::vector<SlotId>& slots,
                     const OffloadUse& use = {});
  // Removes one reader from every chunk. Error: kFailedPrecondition, without any change, if a chunk
  // has fewer readers than the call removes.
  Status CompleteLoad(std::span<const OffloadKey> keys);

  // Before v0.32: the chunks become the most recent chunks, with the first key as the most recent.
  // The end of a prefix is therefore evicted before its start. An absent key that is in the list of
  // evicted keys of ARC moves the target of ARC. From v0.32 on the call has no effect; see
  // OffloadUse.
  void Touch(std::span<const OffloadKey> keys);

  // Reserves slots for the keys that are absent and have reached store_threshold. It evicts chunks
  // if necessary, but never a chunk of `keys`. If there is no key to store, the call succeeds with
  // an empty plan.
  //
  // On error it reserves nothing and evicts nothing. Errors: kExhausted if the evictable chunks are
  // not sufficient (counts of store_threshold and the ARC target may change); kInvalidArgument if a
  // group does not exist. From v0.32 on, also kInvalidArgument if `use` does not have one end per
  // key.
  Status PrepareStore(std::span<const OffloadKey> keys, StorePlan& plan,
                      const OffloadUse& use = {});
  // Ends the store of reserved chunks. `success`: the bytes of the chunks are present. Otherwise
  // the chunks become absent. Keys that are not in state storing are ignored. A caller may
  // therefore complete a part of a job, or complete a job twice.
  void CompleteStore(std::span<const OffloadKey> keys, bool success);

  // Applies the uses of the request to the age of its chunks (see OffloadUse). Drops the record of
  // the keys that were counted for this request (store_threshold); the counts do not change. The
  // caller must call FinishRequest once per request, after the last PrepareStore and PrepareLoad of
  // the request. Copies may still be in progress.
  void FinishRequest(OffloadRequestId request);

  // Removes all chunks, including chunks of stores and loads in progress. The caller must end these
  // copies first, and must not call CompleteStore or CompleteLoad for them later. The counts of
  // store_threshold do not change.
  void Reset();

  // Returns the changes since the last call. An eviction precedes the store that uses its slots.
  // The caller must call this function in every step, because the list grows without limit.
  std::vector<OffloadEvent> TakeEvents();
  const OffloadConfig& config() const;
  OffloadStats TakeStats();

  int64_t slot_bytes() const;
  int64_t num_slots() const;
  // Slots of one chunk of the group. REQUIRES: the group exists.
  int64_t slots_per_chunk(GroupIdx group) const;
  // The number of chunks in any state except absent.
  int64_t num_chunks() const;

  // The complete state. For tests, conformance runs and debugging.
  struct Chunk {
    OffloadKey key;
    std::vector<SlotId> slots;
    int64_t readers = 0;  // -1: storing
    friend bool operator==(const Chunk&, const Chunk&) = default;
  };
  struct State {
    int64_t slots_used_once = 0;  // number of slots that were ever used
    // The free slots that were used before, in the order of their next use.
    std::vector<SlotId> free_slots;
    int64_t evictable_slots = 0;  // slots of idle chunks
    int64_t storing_slots = 0;    // slots of storing chunks
    // LRU: the idle chunks in the order of eviction, then the other chunks. ARC: the chunks of T1,
    // then the chunks of T2, each oldest first.
    std::vector<Chunk> chunks;
    int64_t t1_chunks = 0;  // ARC: number of chunks of T1
    double t1_target = 0;   // ARC: target size of T1, in slots
    // ARC: keys that were evicted from T1, oldest first.
    std::vector<OffloadKey> ghosts_t1;
    std::vector<OffloadKey> ghosts_t2;  // ARC: keys that were evicted from T2
    // Counts for store_threshold, oldest first.
    std::vector<std::pair<OffloadKey, int64_t>> lookup_counts;
  };
  State Inspect() const;
  // Checks every invariant. Error: kInternal; the message names the contradiction.
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
