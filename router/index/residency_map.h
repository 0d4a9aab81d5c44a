// ResidencyMap: finds blocks by hash and by content, with their holders and the copy counts. It has
// one RunStore for each form of hash.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/block_hash_value.h"
#include "router/index/hash_walk.h"
#include "router/index/run_store.h"

namespace kvcast::router {

// Hashes come from the network. Because `seed` is secret, a sender cannot choose hashes that
// collide. The seed does not change the map's answers. Two hashes are equal if their form and all
// their bits are equal.
//
// Threads: one writer (I0 of README.md). WalkHashes and WalkContents may be called by any thread
// that holds a Pin of `reclaim`, while the writer works.
class ResidencyMap {
 public:
  // A writer's position among hashes that were stored together; see RunStore::Cursor.
  struct Cursor {
    RunStore<uint64_t>::Cursor unsigned_int;
    RunStore<uint64_t>::Cursor negative_int;
    RunStore<BlockHash>::Cursor byte_string;
    // Form of the last block. The block that follows it may have another form.
    BlockHash::Form last = BlockHash::Form::kUnsigned;

    // Keeps the position. The next call may use another holder.
    void ForgetHolder() {
      unsigned_int.next_bits = negative_int.next_bits = byte_string.next_bits = nullptr;
    }
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
  template <typename Call>
  void ForEachStore(Call&& call) {
    call(unsigned_ints_);
    call(negative_ints_);
    call(byte_strings_);
  }

 public:
  ResidencyMap(uint64_t seed, SlabArena& arena, ReclaimDomain& reclaim, HolderTable& holder_table)
      : unsigned_ints_(seed, arena, reclaim, holder_table),
        negative_ints_(seed, arena, reclaim, holder_table),
        byte_strings_(seed, arena, reclaim, holder_table) {}

  // See RunStore.
  Addition Add(const BlockHash& hash, BlockName name, const Holding& holding, size_t more,
               bool follows, Cursor& cursor) {
    follows = follows && cursor.last == hash.form();
    cursor.last = hash.form();
    return Dispatch(hash, cursor, [&](auto& store, const auto& key, auto& position) {
      return store.Add(key, name, holding, more, follows, position);
    });
  }
  // See RunStore::AddNew. `form`: the form of the hashes; not kBytes.
  size_t AddNew(BlockHash::Form form, const RunStore<uint64_t>::NewBlocks& blocks,
                const Holding& holding, Cursor& cursor) {
    cursor.last = form;
    return form == BlockHash::Form::kUnsigned
               ? unsigned_ints_.AddNew(blocks, holding, cursor.unsigned_int)
               : negative_ints_.AddNew(blocks, holding, cursor.negative_int);
  }
  size_t AddNew(const RunStore<BlockHash>::NewBlocks& blocks, const Holding& holding,
                Cursor& cursor) {
    cursor.last = BlockHash::Form::kBytes;
    return byte_strings_.AddNew(blocks, holding, cursor.byte_string);
  }
  // See RunStore::Reserve.
  void Reserve(BlockHash::Form form, uint64_t blocks, uint64_t named_runs) {
    switch (form) {
      case BlockHash::Form::kUnsigned:
        return unsigned_ints_.Reserve(blocks, named_runs);
      case BlockHash::Form::kNegative:
        return negative_ints_.Reserve(blocks, named_runs);
      case BlockHash::Form::kBytes:
        return byte_strings_.Reserve(blocks, named_runs);
    }
  }
  Removal Remove(const BlockHash& hash, HolderId holder, Cursor& cursor,
                 BlockName* name = nullptr) {
    return Dispatch(hash, cursor, [&](auto& store, const auto& key, auto& position) {
      return store.Remove(key, holder, position, name);
    });
  }
  uint32_t TakeCopies(const BlockHash& hash, HolderId holder) {
    Cursor cursor;
    return Dispatch(hash, cursor, [&](auto& store, const auto& key, auto&) {
      return store.TakeCopies(key, holder);
    });
  }
  std::optional<BlockName> NameOf(const BlockHash& hash, SourceHolders own, Cursor& cursor) {
    cursor.last = hash.form();
    return Dispatch(hash, cursor, [&](auto& store, const auto& key, auto& position) {
      return store.NameOf(key, own, position);
    });
  }
  // Puts the cursor on the block. If the next call of Add continues the block, Add tries the slot
  // after this block.
  void Seek(const BlockHash& hash, ContentKey content, Cursor& cursor) {
    cursor.last = hash.form();
    Dispatch(hash, cursor, [content](const auto& store, const auto& key, auto& position) {
      store.Seek(key, content, position);
    });
  }
  bool Holds(const BlockHash& hash, HolderId holder) const {
    return Visit(hash,
                 [&](const auto& store, const auto& key) { return store.Holds(key, holder); });
  }
  // Starts to load the memory that Prefetch reads.
  void PrefetchPath(const BlockHash& hash) const {
    Visit(hash, [](const auto& store, const auto& key) { store.PrefetchPath(key); });
  }
  // Starts to load the memory that the other methods read first.
  void Prefetch(const BlockHash& hash) const {
    Visit(hash, [](const auto& store, const auto& key) { store.Prefetch(key); });
  }

  // See RunStore.
  struct Unpublished {
    RunStore<uint64_t>::Unpublished unsigned_ints;
    RunStore<uint64_t>::Unpublished negative_ints;
    RunStore<BlockHash>::Unpublished byte_strings;
  };
  void SwapUnpublished(Unpublished& other) {
    unsigned_ints_.SwapUnpublished(other.unsigned_ints);
    negative_ints_.SwapUnpublished(other.negative_ints);
    byte_strings_.SwapUnpublished(other.byte_strings);
  }
  void Publish() {
    ForEachStore([](auto& store) { store.Publish(); });
  }
  void Tidy() {
    ForEachStore([](auto& store) { store.Tidy(); });
  }
  // Sweep returns false when it has visited all runs.
  void BeginSweep() {
    ForEachStore([](auto& store) { store.BeginSweep(); });
  }
  bool Sweep(size_t work) {
    return unsigned_ints_.Sweep(work) || negative_ints_.Sweep(work) || byte_strings_.Sweep(work);
  }
  void EndSweep() {
    ForEachStore([](auto& store) { store.EndSweep(); });
  }
  static constexpr size_t kShards = LocatorTable::kShards;
  bool Trim(size_t shard) {
    bool again = false;
    ForEachStore([&](auto& store) { again = store.Trim(shard) || again; });
    return again;
  }

  // Writer. A pass in steps; see RunStore.
  struct Pass {
    RunPass unsigned_ints;
    RunPass negative_ints;
    RunPass byte_strings;
  };
  void BeginPass(Pass& pass) const {
    unsigned_ints_.BeginPass(pass.unsigned_ints);
    negative_ints_.BeginPass(pass.negative_ints);
    byte_strings_.BeginPass(pass.byte_strings);
  }
  void EndPass(Pass& pass) const {
    unsigned_ints_.EndPass(pass.unsigned_ints);
    negative_ints_.EndPass(pass.negative_ints);
    byte_strings_.EndPass(pass.byte_strings);
  }
  // See RunStore::Step. Calls `visit(holder, hash, copies)`.
  template <typename Wants, typename Visitor>
  bool Step(Pass& pass, size_t work, Wants&& wants, Visitor&& visit) const {
    return unsigned_ints_.Step(pass.unsigned_ints, work, wants,
                               [&](HolderId holder, uint64_t key, uint32_t copies) {
                                 visit(holder, BlockHash::FromUnsigned(key), copies);
                               }) ||
           negative_ints_.Step(pass.negative_ints, work, wants,
                               [&](HolderId holder, uint64_t key, uint32_t copies) {
                                 visit(holder, BlockHash::FromSigned(static_cast<int64_t>(key)),
                                       copies);
                               }) ||
           byte_strings_.Step(pass.byte_strings, work, wants, visit);
  }

  // Writer. Calls `visit(form, store, part)` for every run with live slots; see
  // RunStore::ForEachRun.
  template <typename Visitor>
  void ForEachRun(Visitor&& visit) const {
    const auto of_form = [&visit](BlockHash::Form form, const auto& store) {
      store.ForEachRun([&](const auto& part) { visit(form, store, part); });
    };
    of_form(BlockHash::Form::kUnsigned, unsigned_ints_);
    of_form(BlockHash::Form::kNegative, negative_ints_);
    of_form(BlockHash::Form::kBytes, byte_strings_);
  }

  bool has_twins() const {
    return unsigned_ints_.has_twins() || negative_ints_.has_twins() || byte_strings_.has_twins();
  }

  // See RunStore::WalkHashes. Positions are indexes into `chain`.
  template <typename Visitor>
  void WalkHashes(std::span<const BlockHash> chain, bool until_gap, bool unnamed_only,
                  Visitor&& visit) const {
    for (size_t begin = 0; begin < chain.size();) {
      const size_t end = EndOfForm(chain, begin);
      size_t reached = begin;
      const auto noted = [&](const HolderSet& set, uint32_t offset, size_t position,
                             uint32_t length) {
        reached = std::max(reached, position + length);
        visit(set, offset, position, length);
      };
      Visit(chain[begin], [&](const auto& store, const auto&) {
        store.WalkHashes(chain.first(end), begin, until_gap, unnamed_only, noted);
      });
      if (until_gap && reached < end) return;
      begin = end;
    }
  }

  // As above, for a chain of unsigned integers.
  template <typename Visitor>
  void WalkHashes(std::span<const uint64_t> chain, bool until_gap, bool unnamed_only,
                  Visitor&& visit) const {
    unsigned_ints_.WalkHashes(chain, 0, until_gap, unnamed_only, visit);
  }

  // A piece of a prompt whose blocks are in one run. Bit i of a holder belongs to the block that
  // ends with hash unit position + i * step of the prompt.
  struct Piece {
    const HolderSet* holders;
    size_t position;
    uint32_t length;
    uint32_t step;  // units per block
  };
  // Calls `visit(Piece)` for every run that begins with a prefix of the prompt. contents[i] is the
  // content key of the first (i + 1) * hash_block_size tokens. `until_gap`: stops at the first unit
  // that no run reaches.
  template <typename Visitor>
  void WalkContents(std::span<const ContentKey> contents, int64_t hash_block_size, bool until_gap,
                    Visitor&& visit) const {
    // If all named blocks have unsigned hashes, the walk skips the other two stores.
    if (!negative_ints_.any_named() && !byte_strings_.any_named()) {
      return WalkStores(contents, hash_block_size, until_gap, visit, unsigned_ints_);
    }
    WalkStores(contents, hash_block_size, until_gap, visit, unsigned_ints_, negative_ints_,
               byte_strings_);
  }

 private:
  template <typename Visitor, typename... Stores>
  static void WalkStores(std::span<const ContentKey> contents, int64_t hash_block_size,
                         bool until_gap, Visitor&& visit, const Stores&... stores) {
    // Number of positions whose filters are read together. The first group is small, because many
    // walks end soon.
    size_t most_ahead = 8;
    size_t reached = 0;  // the first position without a piece
    for (size_t begin = 0; begin < contents.size();) {
      const auto ahead = contents.subspan(begin, std::min(most_ahead, contents.size() - begin));
      uint32_t starts = 0;
      for (size_t i = 0; i < ahead.size(); ++i) {
        starts |= (uint32_t{stores.PrefetchRunsFrom(ahead[i])} | ...) << i;
      }
      for (; starts != 0; starts &= starts - 1) {
        const size_t position = begin + static_cast<size_t>(std::countr_zero(starts));
        if (until_gap && position > reached) return;
        const auto take = [&](const auto& run) {
          const auto piece = PieceOf(run, contents, hash_block_size, position);
          if (!piece) return;
          reached = std::max(reached, position + (piece->length - 1) * size_t{piece->step} + 1);
          visit(*piece);
        };
        (stores.VisitRunsFrom(contents[position], take), ...);
      }
      begin += ahead.size();
      if (until_gap && reached < begin) return;
      most_ahead = 32;
    }
  }

  // Returns the part of a run that begins at `position` and agrees with the prompt.
  template <typename Run>
  static std::optional<Piece> PieceOf(const Run& run, std::span<const ContentKey> contents,
                                      int64_t hash_block_size, size_t position) {
    if (run.stride % hash_block_size != 0) return std::nullopt;
    __builtin_prefetch(run.holders);
    const auto step = static_cast<uint32_t>(run.stride / hash_block_size);
    const size_t most = std::min<size_t>(run.slots, (contents.size() - position - 1) / step + 1);
    // If a prompt has the content of a slot, the prompt also has the contents of all slots before
    // that slot.
    const auto has = [&](size_t slot) {
      return run.contents[slot] == contents[position + slot * step];
    };
    size_t length = most;
    if (!has(most - 1)) {
      length = 1;  // the first slot agrees
      for (size_t differs = most - 1; length < differs;) {
        const size_t middle = length + (differs - length) / 2;
        if (has(middle)) {
          length = middle + 1;
        } else {
          differs = middle;
        }
      }
    }
    return Piece{run.holders, position, static_cast<uint32_t>(length), step};
  }

  // Returns the first position behind `begin` whose hash has another form.
  static size_t EndOfForm(std::span<const BlockHash> chain, size_t begin) {
    const BlockHash::Form form = chain[begin].form();
    size_t end = begin + 1;
    while (end < chain.size() && chain[end].form() == form) ++end;
    return end;
  }

  RunStore<uint64_t> unsigned_ints_;
  RunStore<uint64_t> negative_ints_;
  RunStore<BlockHash> byte_strings_;
};

}  // namespace kvcast::router
