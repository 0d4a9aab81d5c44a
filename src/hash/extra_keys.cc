// SPDX-License-Identifier: Apache-2.0
#include "src/hash/extra_keys.h"

#include <algorithm>
#include <limits>

#include "src/hash/sha256.h"

namespace kvcast {
namespace internal {
namespace {

// Sums that saturate, so that no offset and length, however wrong, is undefined behaviour.
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

void AppendMultimodal(const std::vector<MultimodalItem>& items, int64_t begin, int64_t end,
                      size_t& cursor, BlockKeys& block) {
  if (items.empty() || End(items.back()) <= begin) return;
  for (; cursor < items.size() && items[cursor].offset < end; ++cursor) {
    const MultimodalItem& item = items[cursor];
    const int64_t item_end = End(item);
    if (item_end <= begin) continue;
    Append(block, ExtraKey::Item(item.identifier, OffsetFrom(begin, item)), item.object_tag);
    if (item_end > end) return;
  }
}

// The bytes of the rows [begin, end) that exist. Past the last row the engine hashes an empty
// slice.
std::span<const uint8_t> Rows(const PromptEmbeddings& embeddings, int64_t begin, int64_t end) {
  const size_t rows = embeddings.row_bytes == 0 ? 0 : embeddings.data.size() / embeddings.row_bytes;
  const size_t first = std::min(static_cast<size_t>(std::max<int64_t>(begin, 0)), rows);
  const size_t last = std::min(static_cast<size_t>(std::max<int64_t>(end, 0)), rows);
  const auto* data = reinterpret_cast<const uint8_t*>(embeddings.data.data());
  if (last <= first) return {data, size_t{0}};
  return {data + first * embeddings.row_bytes, (last - first) * embeddings.row_bytes};
}

}  // namespace

bool MayHaveOwnKeys(const HashInputs& inputs, int64_t begin, int64_t end, size_t cursor) {
  const auto& items = inputs.mm_items;
  return inputs.prompt_embeddings || (begin == 0 && !inputs.cache_salt.empty()) ||
         (cursor < items.size() && items[cursor].offset < end && End(items.back()) > begin);
}

void CollectBlockKeys(const HashInputs& inputs, int64_t begin, int64_t end, size_t& cursor,
                      BlockKeys& block) {
  block.keys.clear();
  block.object_tags.clear();
  if (!inputs.lora_name.empty()) Append(block, ExtraKey::Text(inputs.lora_name));
  AppendMultimodal(inputs.mm_items, begin, end, cursor, block);
  if (begin == 0 && !inputs.cache_salt.empty()) Append(block, ExtraKey::Text(inputs.cache_salt));
  if (inputs.prompt_embeddings) {
    const Digest digest = Sha256Once(Rows(*inputs.prompt_embeddings, begin, end));
    Append(block,
           ExtraKey::Binary({reinterpret_cast<const char*>(digest.data.data()), digest.size}));
  }
}

}  // namespace internal

ExtraKeys ExtraKeysFor(const HashInputs& inputs, int64_t begin, int64_t end) {
  size_t cursor = 0;
  internal::BlockKeys block;
  internal::CollectBlockKeys(inputs, begin, end, cursor, block);
  return std::move(block.keys);
}

}  // namespace kvcast
