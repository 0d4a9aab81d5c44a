// SPDX-License-Identifier: Apache-2.0
#include "src/wire/event_writer.h"

#include <optional>
#include <string>
#include <variant>

#include "src/base/check.h"

namespace kvcast::wire {
namespace {

void Write(Writer& out, const BlockHash& hash) {
  switch (hash.form()) {
    case BlockHash::Form::kUnsigned:
      return out.Unsigned(hash.integer());
    case BlockHash::Form::kNegative:
      return out.Signed(static_cast<int64_t>(hash.integer()));
    case BlockHash::Form::kBytes:
      return out.Binary(hash.bytes());
  }
}

void Write(Writer& out, const std::string& text) { out.Text(text); }
void Write(Writer& out, int64_t number) { out.Signed(number); }

void Write(Writer& out, const std::vector<BlockHash>& hashes) {
  out.ArrayHead(hashes.size());
  for (const BlockHash& hash : hashes) Write(out, hash);
}

void Write(Writer& out, const ExtraKey& key);

void Write(Writer& out, const std::vector<ExtraKey>& keys) {
  out.ArrayHead(keys.size());
  for (const ExtraKey& key : keys) Write(out, key);
}

struct ExtraKeyWriter {
  Writer& out;
  void operator()(std::monostate) { out.Nil(); }
  void operator()(bool value) { out.Bool(value); }
  void operator()(int64_t value) { out.Signed(value); }
  void operator()(uint64_t value) { out.Unsigned(value); }
  void operator()(double value) { out.Float(value); }
  void operator()(const std::string& value) { out.Text(value); }
  void operator()(const Bytes& value) {
    out.Binary({reinterpret_cast<const uint8_t*>(value.data.data()), value.data.size()});
  }
  void operator()(const ExtraKeyList& value) { Write(out, value.items); }
};

void Write(Writer& out, const ExtraKey& key) { std::visit(ExtraKeyWriter{out}, key.value); }

void Write(Writer& out, const std::vector<std::optional<ExtraKeys>>& entries) {
  out.ArrayHead(entries.size());
  for (const std::optional<ExtraKeys>& entry : entries) {
    if (entry) {
      Write(out, *entry);
    } else {
      out.Nil();
    }
  }
}

void Write(Writer& out, const std::vector<std::pair<std::string, ExtraKey>>& metadata) {
  out.MapHead(metadata.size());
  for (const auto& [key, value] : metadata) {
    out.Text(key);
    Write(out, value);
  }
}

// A separate type, because writing token ids needs two members of the event.
struct TokensOf {
  const BlockStored& event;
};

void Write(Writer& out, TokensOf tokens) {
  const auto& token_ids = tokens.event.token_ids;
  if (!token_ids) return out.Nil();
  const size_t width = tokens.event.tokens_per_position;
  out.ArrayHead(token_ids->size() / width);
  if (width == 1) return out.SignedList(*token_ids);
  for (size_t i = 0; i < token_ids->size(); ++i) {
    if (i % width == 0) out.ArrayHead(width);
    out.Signed((*token_ids)[i]);
  }
}

// A separate type, because the number of lists is the number of hashes.
struct LookaheadOf {
  const BlockStored& event;
};

void Write(Writer& out, LookaheadOf of) {
  const auto& lookahead = of.event.lookahead;
  if (!lookahead) return out.Nil();
  const auto width = static_cast<size_t>(lookahead->width);
  const std::span<const TokenId> tokens(lookahead->token_ids);
  out.ArrayHead(of.event.block_hashes.size());
  for (size_t i = 0; i < of.event.block_hashes.size(); ++i) {
    out.ArrayHead(width);
    out.SignedList(tokens.subspan(i * width, width));
  }
}

template <typename T>
void Write(Writer& out, const std::optional<T>& value) {
  if (value) {
    Write(out, *value);
  } else {
    out.Nil();
  }
}

// Calls `use` with the member that holds the field.
template <typename Use>
void Visit(const BlockStored& event, Field field, Use use) {
  switch (field) {
    case Field::kBlockHashes:
      return use(event.block_hashes);
    case Field::kParentBlockHash:
      return use(event.parent_block_hash);
    case Field::kTokenIds:
      return use(TokensOf{event});
    case Field::kBlockSize:
      return use(event.block_size);
    case Field::kLoraId:
      return use(event.lora_id);
    case Field::kMedium:
      return use(event.medium);
    case Field::kLoraName:
      return use(event.lora_name);
    case Field::kExtraKeys:
      return use(event.extra_keys);
    case Field::kGroupIdx:
      return use(event.group_idx);
    case Field::kSpecKind:
      return use(event.kv_cache_spec_kind);
    case Field::kSlidingWindow:
      return use(event.kv_cache_spec_sliding_window);
    case Field::kLocality:
      return use(event.locality);
    case Field::kOwnership:
      return use(event.ownership);
    case Field::kSessionId:
      return use(event.session_id);
    case Field::kLookaheadTokenIds:
      return use(LookaheadOf{event});
    case Field::kCacheSalt:
      return use(event.cache_salt);
    case Field::kMetadata:
      return use(event.metadata);
    case Field::kTokenOffset:
      return use(event.token_offset);
  }
}

template <typename Use>
void Visit(const BlockRemoved& event, Field field, Use use) {
  switch (field) {
    case Field::kBlockHashes:
      return use(event.block_hashes);
    case Field::kMedium:
      return use(event.medium);
    case Field::kGroupIdx:
      return use(event.group_idx);
    case Field::kLocality:
      return use(event.locality);
    case Field::kOwnership:
      return use(event.ownership);
    default:
      KV_CHECK(false);
  }
}

template <typename Use>
void Visit(const AllBlocksCleared& event, Field field, Use use) {
  KV_CHECK(field == Field::kMedium);
  use(event.medium);
}

template <typename T>
bool HasNoValue(const T&) {
  return false;
}
template <typename T>
bool HasNoValue(const std::optional<T>& value) {
  return !value.has_value();
}
bool HasNoValue(const TokensOf& tokens) { return !tokens.event.token_ids.has_value(); }
bool HasNoValue(const LookaheadOf& of) { return !of.event.lookahead.has_value(); }

template <typename EventType>
bool FieldIsNil(const EventType& event, Field field) {
  bool nil = false;
  Visit(event, field, [&](const auto& value) { nil = HasNoValue(value); });
  return nil;
}

}  // namespace

void WriteHash(Writer& out, const BlockHash& hash) { Write(out, hash); }

bool IsNil(const BlockStored& event, Field field) { return FieldIsNil(event, field); }
bool IsNil(const BlockRemoved& event, Field field) { return FieldIsNil(event, field); }
bool IsNil(const AllBlocksCleared& event, Field field) { return FieldIsNil(event, field); }

void WriteField(Writer& out, const BlockStored& event, Field field) {
  Visit(event, field, [&](const auto& value) { Write(out, value); });
}
void WriteField(Writer& out, const BlockRemoved& event, Field field) {
  Visit(event, field, [&](const auto& value) { Write(out, value); });
}
void WriteField(Writer& out, const AllBlocksCleared& event, Field field) {
  Visit(event, field, [&](const auto& value) { Write(out, value); });
}

}  // namespace kvcast::wire
