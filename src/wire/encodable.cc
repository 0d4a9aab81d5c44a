// SPDX-License-Identifier: Apache-2.0
#include "src/wire/encodable.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/wire/utf8.h"

namespace kvcast::wire {
namespace {

// The writer recurses into nested lists, and no decoder accepts deeper lists.
constexpr int kListDepthMax = 60;

bool TextFits(const std::string& text) { return text.size() <= kMaxLength && IsUtf8(text); }
bool TextFits(const std::optional<std::string>& text) { return !text || TextFits(*text); }

bool ListFits(const std::vector<ExtraKey>& keys, int depth);

bool KeyFits(const ExtraKey& key, int depth) {
  if (const auto* text = std::get_if<std::string>(&key.value)) return TextFits(*text);
  if (const auto* bytes = std::get_if<Bytes>(&key.value)) return bytes->data.size() <= kMaxLength;
  if (const auto* list = std::get_if<ExtraKeyList>(&key.value)) {
    return ListFits(list->items, depth + 1);
  }
  return true;
}

bool ListFits(const std::vector<ExtraKey>& keys, int depth) {
  if (depth > kListDepthMax || keys.size() > kMaxLength) return false;
  return std::all_of(keys.begin(), keys.end(),
                     [depth](const ExtraKey& key) { return KeyFits(key, depth); });
}

bool HashFits(const BlockHash& hash) {
  return !hash.is_bytes() || hash.bytes().size() <= kMaxLength;
}

bool HashesFit(const std::vector<BlockHash>& hashes) {
  return hashes.size() <= kMaxLength && std::all_of(hashes.begin(), hashes.end(), HashFits);
}

bool TokensFit(const BlockStored& event) {
  if (event.tokens_per_position != 1 && event.tokens_per_position != 2) return false;
  if (!event.token_ids) return event.tokens_per_position == 1;
  const size_t tokens = event.token_ids->size();
  if (tokens == 0) return event.tokens_per_position == 1;
  return tokens % event.tokens_per_position == 0 && tokens <= kMaxLength;
}

// True if there is a list of `width` tokens for each hash.
bool LookaheadFits(const BlockStored& event) {
  if (!event.lookahead) return true;
  const size_t tokens = event.lookahead->token_ids.size();
  const size_t hashes = event.block_hashes.size();
  if (event.lookahead->width < 0 || tokens > kMaxLength) return false;
  const auto width = static_cast<size_t>(event.lookahead->width);
  if (hashes == 0 || width == 0) return tokens == 0;
  return tokens % hashes == 0 && tokens / hashes == width;
}

bool ExtraKeysFit(const BlockStored& event) {
  if (!event.extra_keys) return true;
  return event.extra_keys->size() <= kMaxLength &&
         std::all_of(event.extra_keys->begin(), event.extra_keys->end(),
                     [](const auto& entry) { return !entry || ListFits(*entry, 1); });
}

bool MetadataFits(const BlockStored& event) {
  if (!event.metadata) return true;
  return event.metadata->size() <= kMaxLength &&
         std::all_of(event.metadata->begin(), event.metadata->end(), [](const auto& pair) {
           return TextFits(pair.first) && KeyFits(pair.second, 1);
         });
}

}  // namespace

const char* ProblemOf(const BlockStored& event) {
  if (event.block_size < 0) return "negative block_size";
  if (event.kv_cache_spec_sliding_window.value_or(0) < 0) return "negative sliding window";
  if (event.token_offset.value_or(0) < 0) return "negative token_offset";
  if (!HashesFit(event.block_hashes)) return "block_hashes too long";
  if (event.parent_block_hash && !HashFits(*event.parent_block_hash))
    return "parent_block_hash too long";
  if (!TokensFit(event)) return "token_ids and tokens_per_position do not match";
  if (!LookaheadFits(event)) return "lookahead tokens and block_hashes do not match";
  if (!ExtraKeysFit(event)) return "extra_keys too long, too deep or not UTF-8";
  if (!MetadataFits(event)) return "metadata too long, too deep or not UTF-8";
  for (const auto* text :
       {&event.medium, &event.lora_name, &event.kv_cache_spec_kind, &event.locality,
        &event.ownership, &event.session_id, &event.cache_salt}) {
    if (!TextFits(*text)) return "text too long or not UTF-8";
  }
  return nullptr;
}

const char* ProblemOf(const BlockRemoved& event) {
  if (!HashesFit(event.block_hashes)) return "block_hashes too long";
  const bool texts =
      TextFits(event.medium) && TextFits(event.locality) && TextFits(event.ownership);
  return texts ? nullptr : "text too long or not UTF-8";
}

const char* ProblemOf(const AllBlocksCleared& event) {
  return TextFits(event.medium) ? nullptr : "text too long or not UTF-8";
}

Status TooManyEvents() { return {StatusCode::kInvalidArgument, "too many events"}; }

Status BadEvent(size_t index, const char* problem) {
  return {StatusCode::kInvalidArgument, "event " + std::to_string(index) + ": " + problem};
}

Status CheckEncodable(const EventBatch& batch) {
  if (batch.events.size() > kMaxLength) return TooManyEvents();
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const char* problem = std::visit([](const auto& e) { return ProblemOf(e); }, batch.events[i]);
    if (problem != nullptr) return BadEvent(i, problem);
  }
  return {};
}

}  // namespace kvcast::wire
