// SPDX-License-Identifier: Apache-2.0
#include "src/wire/event_decoder.h"

#include <iterator>
#include <optional>
#include <utility>

#include "src/wire/layout.h"

namespace kvcast::wire {
namespace {

bool ReadField(FieldReader& in, Field field, BlockStored& event) {
  switch (field) {
    case Field::kBlockHashes:
      return in.Hashes(event.block_hashes);
    case Field::kParentBlockHash:
      return in.Hash(event.parent_block_hash);
    case Field::kTokenIds:
      return in.Tokens(event);
    case Field::kBlockSize:
      return in.NonNegative(event.block_size);
    case Field::kLoraId:
      return in.Integer(event.lora_id);
    case Field::kMedium:
      return in.Text(event.medium);
    case Field::kLoraName:
      return in.Text(event.lora_name);
    case Field::kExtraKeys:
      return in.ExtraKeyEntries(event.extra_keys);
    case Field::kGroupIdx:
      return in.Integer(event.group_idx);
    case Field::kSpecKind:
      return in.Text(event.kv_cache_spec_kind);
    case Field::kSlidingWindow:
      return in.NonNegative(event.kv_cache_spec_sliding_window);
    case Field::kLocality:
      return in.Text(event.locality);
    case Field::kOwnership:
      return in.Text(event.ownership);
    case Field::kSessionId:
      return in.Text(event.session_id);
    case Field::kLookaheadTokenIds:
      return in.Lookahead(event.lookahead);
    case Field::kCacheSalt:
      return in.Text(event.cache_salt);
    case Field::kMetadata:
      return in.Metadata(event.metadata);
    case Field::kTokenOffset:
      return in.NonNegative(event.token_offset);
  }
  return false;
}

bool ReadField(FieldReader& in, Field field, BlockRemoved& event) {
  switch (field) {
    case Field::kBlockHashes:
      return in.Hashes(event.block_hashes);
    case Field::kMedium:
      return in.Text(event.medium);
    case Field::kGroupIdx:
      return in.Integer(event.group_idx);
    case Field::kLocality:
      return in.Text(event.locality);
    case Field::kOwnership:
      return in.Text(event.ownership);
    default:
      return in.SkipUnknown();
  }
}

bool ReadField(FieldReader& in, Field field, AllBlocksCleared& event) {
  return field == Field::kMedium ? in.Text(event.medium) : in.SkipUnknown();
}

// Keys that SGLang adds to stores.
constexpr std::string_view kComponentTypesKey = "component_types";
constexpr std::string_view kComponentIdKey = "component_id";
// Forks of vLLM add fields with these keys to stores.
constexpr std::string_view kSkippedPrefix = "skipped_";

// Index of the field with this key; named.size() if no field has it. The search starts at
// `expected` and wraps around. `expected` is the index if the producer writes the fields in the
// usual order.
size_t FindField(std::span<const Field> named, size_t expected, std::string_view key) {
  for (size_t i = expected; i < named.size(); ++i) {
    if (FieldKey(named[i]) == key) return i;
  }
  for (size_t i = 0; i < expected; ++i) {
    if (FieldKey(named[i]) == key) return i;
  }
  return named.size();
}

// An event without lookahead must not keep the lookahead of an earlier event that used this object.
void DropUnsent(FieldSet seen, BlockStored& event) {
  if (!seen.Contains(Field::kLookaheadTokenIds)) event.lookahead.reset();
}
void DropUnsent(FieldSet, BlockRemoved&) {}
void DropUnsent(FieldSet, AllBlocksCleared&) {}

template <typename EventType>
bool ReadPairs(FieldReader& in, const EventFields& known, uint64_t pairs, EventType& event) {
  FieldSet seen;
  bool type_seen = false;
  size_t expected = 0;
  for (uint64_t i = 0; i < pairs; ++i) {
    Kind kind;
    if (!in.PeekKind(kind)) return false;
    if (kind != Kind::kText) {
      if (!in.Skip() || !in.SkipUnknown()) return false;
      continue;
    }
    Value key;
    if (!in.Any(key)) return false;
    if (key.as_view() == kTypeKey) {
      if (std::exchange(type_seen, true)) return in.Fail(Reject::kDuplicateKey);
      if (!in.Skip()) return false;
      continue;
    }
    const size_t index = FindField(known.named, expected, key.as_view());
    if (index == known.named.size()) {
      const bool components =
          key.as_view() == kComponentTypesKey || key.as_view() == kComponentIdKey;
      if (key.as_view().starts_with(kSkippedPrefix)) in.NoteSkippedField();
      if (!(components ? in.SkipComponents() : in.SkipUnknown())) return false;
      continue;
    }
    const Field field = known.named[index];
    if (seen.Contains(field)) return in.Fail(Reject::kDuplicateKey);
    seen.Insert(field);
    expected = index + 1;
    if (!ReadField(in, field, event)) return false;
  }
  DropUnsent(seen, event);
  return seen.ContainsAll(known.required) || in.Fail(Reject::kMissingField);
}

// Elements 7 and 8 of a BlockStored array; the tag is element 0. vLLM puts the LoRA name and the
// extra keys there. SGLang puts a metadata map and a list of component names there. Only the types
// of the values distinguish the two producers.
bool ReadContestedElement(FieldReader& in, Field field, BlockStored& event) {
  Kind kind;
  if (!in.PeekKind(kind)) return false;
  if (field == Field::kLoraName) {
    if (kind == Kind::kMap) return in.Metadata(event.metadata);
    if (kind == Kind::kArray) return in.AtTextArray() ? in.SkipComponents() : in.SkipUnknown();
  } else if (kind == Kind::kMap && !event.metadata) {
    return in.Metadata(event.metadata);
  } else if (in.AtTextArray()) {
    return in.SkipComponents();
  }
  return ReadField(in, field, event);
}

bool ReadElement(FieldReader& in, Field field, BlockStored& event) {
  if (field == Field::kLoraName || field == Field::kExtraKeys) {
    return ReadContestedElement(in, field, event);
  }
  return ReadField(in, field, event);
}
bool ReadElement(FieldReader& in, Field field, BlockRemoved& event) {
  return ReadField(in, field, event);
}
bool ReadElement(FieldReader& in, Field field, AllBlocksCleared& event) {
  return ReadField(in, field, event);
}

template <typename EventType>
bool ReadElements(FieldReader& in, const EventFields& known, uint64_t elements, EventType& event) {
  FieldSet seen;
  for (uint64_t i = 0; i < elements; ++i) {
    if (i >= known.positional.size()) {
      if (!in.SkipUnknown()) return false;
      continue;
    }
    seen.Insert(known.positional[i]);
    if (!ReadElement(in, known.positional[i], event)) return false;
  }
  DropUnsent(seen, event);
  return seen.ContainsAll(known.required) || in.Fail(Reject::kMissingField);
}

// Empties an event but keeps the memory of its long lists. token_ids and lookahead may keep a
// value. token_ids is a required field, so the decoder always overwrites it. DropUnsent resets the
// lookahead.
void Clear(BlockStored& event) {
  std::vector<BlockHash> hashes;
  std::vector<TokenId> tokens;
  std::optional<LookaheadTokens> lookahead;
  hashes.swap(event.block_hashes);
  if (event.token_ids) tokens.swap(*event.token_ids);
  lookahead.swap(event.lookahead);
  event = BlockStored();
  event.lookahead.swap(lookahead);
  hashes.clear();
  event.block_hashes.swap(hashes);
  event.token_ids.emplace().swap(tokens);
}
void Clear(BlockRemoved& event) {
  std::vector<BlockHash> hashes = std::move(event.block_hashes);
  event = BlockRemoved();
  hashes.clear();
  event.block_hashes = std::move(hashes);
}
void Clear(AllBlocksCleared& event) { event = AllBlocksCleared(); }

// Reuses the slot of an earlier batch if the slot holds the same kind of event.
template <typename EventType>
EventType& Emptied(Event& event) {
  auto* same = std::get_if<EventType>(&event);
  if (same == nullptr) return event.emplace<EventType>();
  Clear(*same);
  return *same;
}

// Checks several fields together: each hash must have its list of lookahead tokens.
bool Consistent(const FieldReader& in, const BlockStored& event) {
  return !event.lookahead || in.lookahead_lists() == event.block_hashes.size();
}
bool Consistent(const FieldReader&, const BlockRemoved&) { return true; }
bool Consistent(const FieldReader&, const AllBlocksCleared&) { return true; }

template <typename EventType>
bool ReadEvent(FieldReader& in, EventKind kind, const Value& head, Event& event) {
  EventType& typed = Emptied<EventType>(event);
  const EventFields& known = FieldsOf(kind);
  const bool read = head.kind == Kind::kMap ? ReadPairs(in, known, head.number, typed)
                                            : ReadElements(in, known, head.number - 1, typed);
  return read && (Consistent(in, typed) || in.Fail(Reject::kBadValue));
}

std::optional<EventKind> KindOfTag(const Value& tag) {
  // One producer sends the index of the event class instead of its name.
  if (tag.kind == Kind::kUnsigned && tag.number < std::size(kEventTags)) {
    return static_cast<EventKind>(tag.number);
  }
  if (tag.kind != Kind::kText) return std::nullopt;
  for (size_t i = 0; i < std::size(kEventTags); ++i) {
    if (tag.as_view() == kEventTags[i]) return static_cast<EventKind>(i);
  }
  return std::nullopt;
}

// Finds the value of the "type" key. All known producers write this key first.
bool FindTag(Reader ahead, uint64_t pairs, Value& tag) {
  for (uint64_t i = 0; i < pairs; ++i) {
    Reader at_key = ahead;
    Value key;
    if (at_key.Next(key) && key.kind == Kind::kText && key.as_view() == kTypeKey) {
      return at_key.Next(tag);
    }
    if (!ahead.Skip() || !ahead.Skip()) return false;
  }
  return false;
}

bool ReadTag(Reader& in, const Value& head, Value& tag) {
  if (head.kind == Kind::kMap) return FindTag(in, head.number, tag);
  return head.number > 0 && in.Next(tag);
}

bool DecodeBody(Reader& in, const Value& head, FieldReader& fields, Event& event) {
  Value tag;
  if (!head.is_container() || !ReadTag(in, head, tag)) return fields.Fail(Reject::kNoTag);
  if (tag.kind != Kind::kText && !tag.is_integer()) return fields.Fail(Reject::kNoTag);
  const std::optional<EventKind> kind = KindOfTag(tag);
  if (!kind) return fields.Fail(Reject::kUnknownEvent);
  switch (*kind) {
    case EventKind::kStored:
      return ReadEvent<BlockStored>(fields, *kind, head, event);
    case EventKind::kRemoved:
      return ReadEvent<BlockRemoved>(fields, *kind, head, event);
    case EventKind::kCleared:
      return ReadEvent<AllBlocksCleared>(fields, *kind, head, event);
  }
  return false;
}

std::optional<Reject> DecodeWhole(Reader& in, const Value& head, const EventContext& context,
                                  Event& event) {
  FieldReader fields(in, context.limits, context.options, context.budget);
  const bool ok = DecodeBody(in, head, fields, event);
  context.counts.unknown_fields += fields.unknown_fields();
  context.counts.component_fields += fields.component_fields();
  context.counts.skipped_fields += fields.skipped_fields();
  context.single_hash = fields.single_hash();
  return ok ? std::nullopt : std::optional<Reject>(fields.reason());
}

}  // namespace

std::optional<Reject> DecodeEvent(Reader& in, const EventContext& context, Event& event) {
  Value head;
  if (!in.Next(head)) return Reject::kBadValue;
  if (head.kind != Kind::kBytes) return DecodeWhole(in, head, context, event);
  Reader packed({head.data, static_cast<size_t>(head.number)});
  if (!packed.Next(head)) return Reject::kBadValue;
  const std::optional<Reject> reject = DecodeWhole(packed, head, context, event);
  if (!reject && !packed.at_end()) return Reject::kBadValue;
  return reject;
}

}  // namespace kvcast::wire
