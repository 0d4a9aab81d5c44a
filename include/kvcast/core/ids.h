// Strong types for the small numbers that travel together, so that a group index can never be
// passed as a block id.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace kvcast {

// A number of one meaning. Explicit in, explicit out (`.value`), ordered and hashable.
template <typename Tag, typename Rep>
struct StrongId {
  using rep = Rep;
  Rep value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

// Index of a KV-cache group inside one engine; the wire's `group_idx`.
using GroupIdx = StrongId<struct GroupIdxTag, uint32_t>;
// Index of a physical block inside one pool. Block 0 of a GPU pool is the null block.
using BlockId = StrongId<struct BlockIdTag, uint32_t>;
// Index of a slot: host memory is cut into slots of equal size (OffloadManager::slot_bytes()).
using SlotId = StrongId<struct SlotIdTag, uint32_t>;
// Sequence number of a published batch; the first batch of a publisher is 0.
using Seq = StrongId<struct SeqTag, uint64_t>;
// A worker = (instance, data-parallel rank), numbered by the router that registered it.
using WorkerId = StrongId<struct WorkerIdTag, uint32_t>;

// Token ids are what the engine's tokenizer gives. 64 bits, because the wire and the hash schemes
// carry values above 2^32.
using TokenId = int64_t;

}  // namespace kvcast

template <typename Tag, typename Rep>
struct std::hash<kvcast::StrongId<Tag, Rep>> {
  size_t operator()(const kvcast::StrongId<Tag, Rep>& id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
