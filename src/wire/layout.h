// The fields of events on the wire: their names, and the ordered list of fields in each generation
// of each producer. The encoder and the decoder share this table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kvcast/wire/wire.h"

namespace kvcast::wire {

// The number of a field is its bit in FieldSet and its index in kFieldKeys. The number is not part
// of the wire format.
enum class Field : uint8_t {
  kBlockHashes,
  kParentBlockHash,
  kTokenIds,
  kBlockSize,
  kLoraId,
  kMedium,
  kLoraName,
  kExtraKeys,
  kGroupIdx,
  kSpecKind,
  kSlidingWindow,
  kLocality,
  kOwnership,
  kSessionId,
  kLookaheadTokenIds,
  kCacheSalt,
  kMetadata,
  kTokenOffset,
};

// The keys in map events, by Field.
inline constexpr std::array<std::string_view, 18> kFieldKeys = {
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "lookahead_token_ids",
    "cache_salt",
    "metadata",
    "token_offset",
};
inline std::string_view FieldKey(Field field) { return kFieldKeys[static_cast<size_t>(field)]; }

class FieldSet {
 public:
  constexpr FieldSet() = default;
  constexpr explicit FieldSet(std::span<const Field> fields) {
    for (Field field : fields) Insert(field);
  }
  constexpr void Insert(Field field) { bits_ |= Bit(field); }
  constexpr bool Contains(Field field) const { return (bits_ & Bit(field)) != 0; }
  constexpr bool ContainsAll(FieldSet other) const { return (bits_ & other.bits_) == other.bits_; }

 private:
  static constexpr uint32_t Bit(Field field) { return 1u << static_cast<unsigned>(field); }
  uint32_t bits_ = 0;
};

enum class EventKind : uint8_t { kStored, kRemoved, kCleared };
inline constexpr std::string_view kEventTags[] = {"BlockStored", "BlockRemoved",
                                                  "AllBlocksCleared"};
inline constexpr std::string_view kTypeKey = "type";

// The fields that the decoder reads in one kind of event.
struct EventFields {
  std::span<const Field> named;       // in map events, in the order in which vLLM writes them
  std::span<const Field> positional;  // in array events, after the tag
  FieldSet required;
};
const EventFields& FieldsOf(EventKind kind);

// One kind of event in one dialect. A nil field after the first `always` fields is left out. In an
// array event only trailing nil fields can be left out.
struct EventLayout {
  std::span<const Field> fields;
  size_t always = 0;
  // True: map heads have a 16-bit count even for few pairs. vLLM's encoder chooses the form of a
  // head by the number of pairs that the event's class can have, tag included. For up to 15 pairs
  // it uses the shortest form, and for 16 pairs the 16-bit form.
  bool wide_head = false;
};

struct Layout {
  std::string_view name;
  bool maps = false;  // events are maps, otherwise arrays
  bool rank = true;   // the batch has its third element, the rank
  EventLayout stored;
  EventLayout removed;
  EventLayout cleared;
};
const Layout& LayoutOf(Dialect dialect);

}  // namespace kvcast::wire
