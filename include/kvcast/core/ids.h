// Strong types for small numbers. The compiler rejects, for example, a group index where a block id
// is required.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace kvcast {

// A number with one meaning. Conversions are explicit in both directions (`.value`). Ids are
// ordered and hashable.
template <typename Tag, typename Rep>
struct StrongId {
  using rep = Rep;
  Rep value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

// Index of a KV-cache group inside one engine; `group_idx` of the events.
using GroupIdx = StrongId<struct GroupIdxTag, uint32_t>;
// Index of a physical block inside one pool. Block 0 of a GPU pool is the null block.
using BlockId = StrongId<struct BlockIdTag, uint32_t>;
// Index of a slot of host memory. All slots have the same size (OffloadManager::slot_bytes()).
using SlotId = StrongId<struct SlotIdTag, uint32_t>;
// Sequence number of a published batch. The first batch of a publisher has number 0.
using Seq = StrongId<struct SeqTag, uint64_t>;
// A worker is one pair (instance, data-parallel rank). The router that registers the worker assigns
// the number.
using WorkerId = StrongId<struct WorkerIdTag, uint32_t>;

// A token id of the engine's tokenizer. The type has 64 bits because the wire format and the hash
// schemes carry values above 2^32.
using TokenId = int64_t;

}  // namespace kvcast

template <typename Tag, typename Rep>
struct std::hash<kvcast::StrongId<Tag, Rep>> {
  size_t operator()(const kvcast::StrongId<Tag, Rep>& id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
