// ResidencyMap: block hash -> which places hold it, with copy counts, for hashes of all forms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/block_hash_value.h"
#include "router/run_store.h"

namespace kvcast::router {

// Hashes come from the network: `seed` keeps a sender from choosing colliding ones. The map's
// answers do not depend on it. Equal hashes are equal in full, form included.
// One writer at a time; Walk: any thread that is pinned in `epochs`, beside the writer.
class ResidencyMap {
 public:
  // One writer's way through hashes that were stored together; see RunStore::Cursor.
  struct Cursor {
    RunStore<uint64_t>::Cursor unsigned_int;
    RunStore<uint64_t>::Cursor negative_int;
    RunStore<BlockHash>::Cursor byte_string;
  };

 private:
  template <typename Call>
  auto Dispatch(const BlockHash& hash, Cursor& cursor, Call&& call) {
    switch (hash.form()) {
      case BlockHash::Form::kUnsigned:
        return call(unsigned_ints_, hash.integer(), cursor.unsigned_int);
      case BlockHash::Form::kNegative:
        return call(negative_ints_, hash.integer(), cursor.negative_int);
      case BlockHash::Form::kBytes:
        break;
    }
    return call(byte_strings_, hash, cursor.byte_string);
  }
  template <typename Call>
  auto Visit(const BlockHash& hash, Call&& call) const {
    switch (hash.form()) {
      case BlockHash::Form::kUnsigned:
        return call(unsigned_ints_, hash.integer());
      case BlockHash::Form::kNegative:
        return call(negative_ints_, hash.integer());
      case BlockHash::Form::kBytes:
        break;
    }
    return call(byte_strings_, hash);
  }

 public:
  ResidencyMap(uint64_t seed, SlabArena& arena, EpochDomain& epochs, const PlaceTable& places)
      : unsigned_ints_(seed, arena, epochs, places),
        negative_ints_(seed, arena, epochs, places),
        byte_strings_(seed, arena, epochs, places) {}

  // Adds one copy. True: the place did not hold the hash. `more` hashes will follow this one.
  bool Add(const BlockHash& hash, PlaceId place, size_t more, Cursor& cursor) {
    return Dispatch(hash, cursor, [&](auto& store, const auto& key, auto& at) {
      return store.Add(key, place, more, at);
    });
  }
  Removal Remove(const BlockHash& hash, PlaceId place, Cursor& cursor) {
    return Dispatch(hash, cursor, [&](auto& store, const auto& key, auto& at) {
      return store.Remove(key, place, at);
    });
  }
  // Puts the cursor on the hash, so that what is added next comes to lie behind it.
  void Seek(const BlockHash& hash, Cursor& cursor) {
    Dispatch(hash, cursor,
             [](const auto& store, const auto& key, auto& at) { store.Seek(key, at); });
  }
  bool Holds(const BlockHash& hash, PlaceId place) const {
    return Visit(hash, [&](const auto& store, const auto& key) { return store.Holds(key, place); });
  }
  // Starts loading what Prefetch will look at.
  void PrefetchPath(const BlockHash& hash) const {
    Visit(hash, [](const auto& store, const auto& key) { store.PrefetchPath(key); });
  }
  // Starts loading what the others will look at first.
  void Prefetch(const BlockHash& hash) const {
    Visit(hash, [](const auto& store, const auto& key) { store.Prefetch(key); });
  }

  // See RunStore.
  void Publish();
  void Tidy();
  // False: the sweep has been everywhere.
  void BeginSweep();
  bool Sweep(size_t runs);
  void EndSweep();

  // Calls `visit(place, hash, copies)` for everything that is held, closed places included.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    unsigned_ints_.ForEach([&](PlaceId place, uint64_t key, uint32_t copies) {
      visit(place, BlockHash::FromUnsigned(key), copies);
    });
    negative_ints_.ForEach([&](PlaceId place, uint64_t key, uint32_t copies) {
      visit(place, BlockHash::FromSigned(static_cast<int64_t>(key)), copies);
    });
    byte_strings_.ForEach(visit);
  }

  // See RunStore::Walk. Positions are those of `chain`.
  template <typename Visitor>
  void Walk(std::span<const BlockHash> chain, bool until_gap, Visitor&& visit) const {
    for (size_t begin = 0; begin < chain.size();) {
      const BlockHash::Form form = chain[begin].form();
      size_t end = begin + 1;
      while (end < chain.size() && chain[end].form() == form) ++end;
      size_t reached = begin;
      const auto noted = [&](const HolderSet& holders, uint32_t offset, size_t position,
                             uint32_t length) {
        reached = position + length;
        visit(holders, offset, position, length);
      };
      Visit(chain[begin], [&](const auto& store, const auto&) {
        store.Walk(chain.first(end), begin, until_gap, noted);
      });
      if (until_gap && reached < end) return;
      begin = end;
    }
  }

 private:
  RunStore<uint64_t> unsigned_ints_;
  RunStore<uint64_t> negative_ints_;
  RunStore<BlockHash> byte_strings_;
};

}  // namespace kvcast::router
