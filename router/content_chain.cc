// SPDX-License-Identifier: Apache-2.0
#include "router/content_chain.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "kvcast/token_keys.h"
#include "router/seeded_hash.h"

namespace kvcast::router {
namespace {

uint64_t Fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Injective in `symbol` and in `state`: xor, odd factor, xor-shift.
ContentState Step(ContentState state, uint64_t symbol) {
  state = (state ^ symbol) * 0x9FB21C651E98DF25;
  return state ^ (state >> 32);
}

uint64_t TextSymbol(std::string_view text, uint64_t purpose) {
  return XXH3_64bits_withSeed(text.data(), text.size(), ProcessSeed() + purpose);
}

// Spread over 64 bits under the process's secret, so that users cannot choose tokens whose
// differences cancel out.
uint64_t TokenSymbol(TokenId token) {
  static const uint64_t secret = Fold(ProcessSeed() ^ 0xA0761D6478BD642F, 0xE7037ED1A0B428DB);
  return Fold(static_cast<uint64_t>(token) ^ secret, 0x8EBC6AF09C88C6E3);
}

// (identifier, offset), or nullptr.
const ExtraKeyList* AsItem(const ExtraKey& key) {
  const auto* list = std::get_if<ExtraKeyList>(&key.value);
  if (list == nullptr || list->items.size() != 2) return nullptr;
  const bool is_item = std::holds_alternative<std::string>(list->items[0].value) &&
                       std::holds_alternative<int64_t>(list->items[1].value);
  return is_item ? list : nullptr;
}

std::string_view IdentifierOf(const ExtraKeyList& item) {
  return std::get<std::string>(item.items[0].value);
}
int64_t OffsetOf(const ExtraKeyList& item) { return std::get<int64_t>(item.items[1].value); }

// Whether the item goes on into the block after `index`.
bool GoesOn(const BlockStored& event, size_t index, const ExtraKeyList& item) {
  if (index + 1 >= event.extra_keys->size() || !(*event.extra_keys)[index + 1]) return false;
  const ExtraKeys& next = *(*event.extra_keys)[index + 1];
  return std::any_of(next.begin(), next.end(), [&](const ExtraKey& key) {
    const ExtraKeyList* other = AsItem(key);
    return other != nullptr && IdentifierOf(*other) == IdentifierOf(item) &&
           OffsetOf(*other) == OffsetOf(item) - event.block_size;
  });
}

}  // namespace

ContentState ContentRoot(std::string_view lora_name, std::string_view salt,
                         int tokens_per_position) {
  ContentState state = Step(ProcessSeed(), static_cast<uint64_t>(tokens_per_position));
  if (!lora_name.empty()) state = Step(state, TextSymbol(lora_name, 1));
  if (!salt.empty()) state = Step(state, TextSymbol(salt, 2));
  return state;
}

ContentState AddItem(ContentState state, std::string_view identifier) {
  return Step(state, TextSymbol(identifier, 3));
}

ContentState AddPosition(ContentState state, std::span<const TokenId> tokens) {
  uint64_t symbol = 0;
  for (const TokenId token : tokens) symbol = std::rotl(symbol, 23) ^ TokenSymbol(token);
  return Step(state, symbol);
}

BlockContent ReadBlockContent(const BlockStored& event, size_t index, bool first_block) {
  BlockContent content;
  if (first_block) content.salt = CacheSaltOf(event);
  if (!event.extra_keys || index >= event.extra_keys->size()) return content;
  if (!(*event.extra_keys)[index]) return content;
  const ExtraKeys& keys = *(*event.extra_keys)[index];
  const ExtraKeyList* last_item = nullptr;
  int64_t items = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto* text = std::get_if<std::string>(&keys[i].value);
    if (i == 0 && text != nullptr && event.lora_name && *text == *event.lora_name) continue;
    if (const ExtraKeyList* item = AsItem(keys[i])) {
      ++items;
      last_item = item;
      if (OffsetOf(*item) >= 0) content.items.push_back({OffsetOf(*item), IdentifierOf(*item)});
    } else if (text != nullptr && first_block && content.salt.empty()) {
      content.salt = *text;
    } else {
      content.hidden = true;
    }
  }
  for (const ItemStart& item : content.items) content.hidden |= item.position >= event.block_size;
  // A block that was completed by output tokens after several items was hashed with the last item
  // alone. It cannot be told from one that was complete on arrival, unless the last item goes on.
  if (items > 1 && OffsetOf(*last_item) >= 0) {
    content.hidden |= !GoesOn(event, index, *last_item);
  }
  return content;
}

}  // namespace kvcast::router

namespace kvcast {
namespace {

// Items up to the first that no prompt has; from there on, the new `end`, content cannot be named.
std::span<const MultimodalItem> OrderedItems(const HashInputs& inputs, int64_t& end) {
  const std::span<const MultimodalItem> items = inputs.mm_items;
  int64_t free_from = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& [identifier, offset, length, tag] = items[i];
    if (offset >= end) return items.first(i);
    if (offset < free_from || length <= 0) {
      end = std::max<int64_t>(offset, 0);
      return items.first(i);
    }
    free_from = length < end - offset ? offset + length : end;
  }
  return items;
}

}  // namespace

std::vector<BlockHash> ContentChain(std::span<const TokenId> tokens, int64_t unit,
                                    const HashInputs& inputs, int tokens_per_position) {
  if (inputs.prompt_embeddings) return {};
  const auto width = static_cast<int64_t>(tokens_per_position);
  int64_t positions = std::max<int64_t>(0, std::ssize(tokens) - width + 1);
  const auto items = OrderedItems(inputs, positions);
  router::ContentState state =
      router::ContentRoot(inputs.lora_name, inputs.cache_salt, tokens_per_position);
  std::vector<BlockHash> chain;
  chain.reserve(static_cast<size_t>(positions / unit));
  size_t item = 0;
  for (int64_t i = 0; i < positions / unit * unit; ++i) {
    for (; item < items.size() && items[item].offset == i; ++item) {
      state = router::AddItem(state, items[item].identifier);
    }
    state = router::AddPosition(state, tokens.subspan(static_cast<size_t>(i), width));
    if ((i + 1) % unit == 0) chain.push_back(BlockHash::FromUnsigned(state));
  }
  return chain;
}

}  // namespace kvcast
