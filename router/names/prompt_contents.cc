// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/prompt_contents.h"

#include <algorithm>
#include <limits>

namespace kvcast {
namespace {

// Returns the items before the first item that is empty, overlaps another item or is out of order.
// Sets `end` to the position from which content cannot be named. All items must be checked: the
// engine's hash of a block depends on the last item too, even if that item is behind the prompt.
std::span<const MultimodalItem> OrderedItems(const HashInputs& inputs, int64_t& end) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::span<const MultimodalItem> items = inputs.mm_items;
  size_t ordered = items.size();
  int64_t free_from = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& [identifier, offset, length, tag] = items[i];
    if (length <= 0) {
      end = 0;
    } else if (offset < free_from) {
      end = std::min(end, std::max<int64_t>(offset, 0));
    } else {
      free_from = length < kMost - offset ? offset + length : kMost;
      if (offset < end) continue;
    }
    ordered = std::min(ordered, i);
  }
  return items.first(ordered);
}

}  // namespace

std::vector<ContentKey> PromptContents(const ContentKeys& keys, std::span<const TokenId> tokens,
                                       int64_t hash_block_size, int64_t lookahead,
                                       const HashInputs& inputs) {
  int64_t end = std::ssize(tokens);
  const auto items = OrderedItems(inputs, end);
  const PromptEmbeddingDigests* digests = nullptr;
  for (const PromptEmbeddingDigests& one : inputs.embedding_digests) {
    // The engine's hashes use the first digests of a size.
    if (one.hash_block_size == hash_block_size && digests == nullptr) digests = &one;
  }
  int64_t units = HashedUnits(end, hash_block_size, lookahead);
  if (!inputs.embedding_digests.empty() || inputs.prompt_embeddings) {
    units = std::min(units, digests == nullptr ? 0 : std::ssize(digests->digests));
  }
  std::vector<ContentKey> contents(static_cast<size_t>(units));
  ContentKey state = keys.Root({inputs.lora_name, inputs.cache_salt});
  if (items.empty() && digests == nullptr) {
    state = keys.Extend(state, tokens.first(static_cast<size_t>(units == 0 ? 0 : lookahead)));
    keys.ExtendBy(state, tokens.subspan(static_cast<size_t>(units == 0 ? 0 : lookahead)),
                  static_cast<size_t>(hash_block_size), contents);
    if (lookahead > 0) {
      for (ContentKey& content : contents) content = keys.Mark(content, lookahead);
    }
    return contents;
  }
  size_t item = 0;
  int64_t position = 0;
  for (int64_t i = 0; i < units; ++i) {
    if (digests != nullptr) {
      state = keys.AddEmbeddings(state, digests->digests[static_cast<size_t>(i)]);
    }
    const int64_t covered = (i + 1) * hash_block_size + lookahead;
    while (position < covered) {
      for (; item < items.size() && items[item].offset == position; ++item) {
        state = keys.AddItem(state, items[item].identifier);
      }
      const int64_t next = item < items.size() ? std::min(items[item].offset, covered) : covered;
      state = keys.Extend(state, tokens.subspan(static_cast<size_t>(position),
                                                static_cast<size_t>(next - position)));
      position = next;
    }
    contents[static_cast<size_t>(i)] = keys.Mark(state, lookahead);
  }
  return contents;
}

}  // namespace kvcast
