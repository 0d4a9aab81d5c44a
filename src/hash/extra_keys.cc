// SPDX-License-Identifier: Apache-2.0
#include "src/hash/extra_keys.h"

#include <algorithm>
#include <limits>

#include "src/hash/sha256.h"

namespace kvcast {
namespace internal {
namespace {

// The results saturate, so that a wrong offset or length does not cause undefined behaviour.
int64_t End(const MultimodalItem& item) {
  int64_t end;
  if (!__builtin_add_overflow(item.offset, item.length, &end)) return end;
  return item.length > 0 ? INT64_MAX : INT64_MIN;
}

int64_t OffsetFrom(int64_t begin, const MultimodalItem& item) {
  int64_t offset;
  if (!__builtin_sub_overflow(item.offset, begin, &offset)) return offset;
  return INT64_MIN;
}

void Append(BlockKeys& block, ExtraKey key, uint32_t object_tag = 0) {
  block.keys.push_back(std::move(key));
  block.object_tags.push_back(object_tag);
}

ExtraKey Tagged(std::string_view source, ExtraKey key) {
  return {ExtraKeyList{{ExtraKey::Text(std::string(source)), std::move(key)}}};
}

ExtraKey LoraKey(const HashInputs& inputs, ExtraKeyScheme scheme) {
  if (scheme == ExtraKeyScheme::kBare) return ExtraKey::Text(inputs.lora_name);
  return {ExtraKeyList{{ExtraKey::Text("lora"), ExtraKey::Text(inputs.lora_name),
                        ExtraKey::Text(inputs.lora_path)}}};
}

ExtraKey ItemKey(const std::string& identifier, int64_t offset, ExtraKeyScheme scheme) {
  if (scheme == ExtraKeyScheme::kBare) return ExtraKey::Item(identifier, offset);
  return {ExtraKeyList{{ExtraKey::Text("mm"), ExtraKey::Text(identifier), ExtraKey::Int(offset)}}};
}

ExtraKey SaltKey(const std::string& salt, ExtraKeyScheme scheme) {
  ExtraKey key = ExtraKey::Text(salt);
  return scheme == ExtraKeyScheme::kBare ? key : Tagged("cache_salt", std::move(key));
}

ExtraKey EmbeddingsKey(std::span<const uint8_t> digest, ExtraKeyScheme scheme) {
  ExtraKey key = ExtraKey::Binary({reinterpret_cast<const char*>(digest.data()), digest.size()});
  return scheme == ExtraKeyScheme::kBare ? key : Tagged("prompt_embeds", std::move(key));
}

// One past the last position that the hash covers.
int64_t CoveredEnd(const HashedRange& range) {
  int64_t end;
  return __builtin_add_overflow(range.end, range.lookahead, &end) ? INT64_MAX : end;
}

void AppendMultimodal(const std::vector<MultimodalItem>& items, const HashedRange& range,
                      ExtraKeyScheme scheme, size_t& cursor, BlockKeys& block) {
  if (items.empty() || End(items.back()) <= range.begin) return;
  const size_t first = cursor;
  const int64_t end = CoveredEnd(range);
  for (; cursor < items.size() && items[cursor].offset < end; ++cursor) {
    const MultimodalItem& item = items[cursor];
    const int64_t item_end = End(item);
    if (item_end <= range.begin) continue;
    Append(block, ItemKey(item.identifier, OffsetFrom(range.begin, item), scheme), item.object_tag);
    if (item_end > end) break;
  }
  // With a lookahead, the loop also passes items that end after the block. Such an item belongs to
  // the next block too, so the cursor moves back to it.
  while (range.lookahead > 0 && cursor > first && End(items[cursor - 1]) > range.end) --cursor;
}

// The bytes of the existing rows in [begin, end). After the last row the engine hashes an empty
// slice.
std::span<const uint8_t> Rows(const PromptEmbeddings& embeddings, int64_t begin, int64_t end) {
  const size_t rows = embeddings.row_bytes == 0 ? 0 : embeddings.data.size() / embeddings.row_bytes;
  const size_t first = std::min(static_cast<size_t>(std::max<int64_t>(begin, 0)), rows);
  const size_t last = std::min(static_cast<size_t>(std::max<int64_t>(end, 0)), rows);
  const auto* data = reinterpret_cast<const uint8_t*>(embeddings.data.data());
  if (last <= first) return {data, size_t{0}};
  return {data + first * embeddings.row_bytes, (last - first) * embeddings.row_bytes};
}

// The digest that the inputs give for the range, if the range is a hash unit of the prompt;
// otherwise nullptr.
const std::array<uint8_t, 32>* GivenDigest(const std::vector<PromptEmbeddingDigests>& given,
                                           const HashedRange& range) {
  for (const auto& [size, digests] : given) {
    if (size <= 0 || size != range.end - range.begin || range.begin % size != 0) continue;
    const auto index = static_cast<size_t>(range.begin / size);
    if (range.begin >= 0 && index < digests.size()) return &digests[index];
  }
  return nullptr;
}

bool AppendEmbeddings(const HashInputs& inputs, const HashedRange& range, ExtraKeyScheme scheme,
                      BlockKeys& block) {
  if (inputs.prompt_embeddings) {
    const auto rows = Rows(*inputs.prompt_embeddings, range.begin, CoveredEnd(range));
    Append(block, EmbeddingsKey(Sha256Once(rows).bytes(), scheme));
    return true;
  }
  if (inputs.embedding_digests.empty()) return true;
  const auto* digest = GivenDigest(inputs.embedding_digests, range);
  if (digest) Append(block, EmbeddingsKey(*digest, scheme));
  return digest != nullptr;
}

}  // namespace

ExtraKeys SharedKeys(const HashInputs& inputs, ExtraKeyScheme scheme) {
  if (inputs.lora_name.empty()) return {};
  return {LoraKey(inputs, scheme)};
}

bool MayHaveOwnKeys(const HashInputs& inputs, const HashedRange& range, size_t cursor) {
  const auto& items = inputs.mm_items;
  return inputs.prompt_embeddings || !inputs.embedding_digests.empty() ||
         (range.begin == 0 && !inputs.cache_salt.empty()) ||
         (cursor < items.size() && items[cursor].offset < CoveredEnd(range) &&
          End(items.back()) > range.begin);
}

bool CollectBlockKeys(const HashInputs& inputs, const HashedRange& range, ExtraKeyScheme scheme,
                      size_t& cursor, BlockKeys& block) {
  block.keys.clear();
  block.object_tags.clear();
  if (!inputs.lora_name.empty()) Append(block, LoraKey(inputs, scheme));
  AppendMultimodal(inputs.mm_items, range, scheme, cursor, block);
  if (range.begin == 0 && !inputs.cache_salt.empty()) {
    Append(block, SaltKey(inputs.cache_salt, scheme));
  }
  return AppendEmbeddings(inputs, range, scheme, block);
}

}  // namespace internal

ExtraKeys ExtraKeysFor(const HashInputs& inputs, int64_t begin, int64_t end,
                       const ChainForm& form) {
  size_t cursor = 0;
  internal::BlockKeys block;
  internal::CollectBlockKeys(inputs, {begin, end, form.lookahead}, form.extra_keys, cursor, block);
  return std::move(block.keys);
}

}  // namespace kvcast
