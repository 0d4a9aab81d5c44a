// SPDX-License-Identifier: Apache-2.0
#include "router/names/store_content.h"

#include <algorithm>

#include "router/names/sparse_span.h"

namespace kvcast::router {
namespace {

// No prompt reaches this offset. Sums with this offset fit 64 bits.
constexpr int64_t kMaxOffset = int64_t{1} << 40;

// Returns the pair (identifier, offset), or nullptr.
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

// True if the item of block `index` continues in the next block.
bool ContinuesInNextBlock(const BlockStored& event, size_t index, const ExtraKeyList& item) {
  if (index + 1 >= event.extra_keys->size() || !(*event.extra_keys)[index + 1]) return false;
  const ExtraKeys& next = *(*event.extra_keys)[index + 1];
  return std::any_of(next.begin(), next.end(), [&](const ExtraKey& key) {
    const ExtraKeyList* other = AsItem(key);
    return other != nullptr && IdentifierOf(*other) == IdentifierOf(item) &&
           OffsetOf(*other) == OffsetOf(item) - event.block_size;
  });
}

int64_t BlocksOf(const BlockStored& event) {
  return std::ssize(*event.token_ids) / (event.block_size * int64_t{event.tokens_per_position});
}

// The tokens of a store's span by position, and the lookahead tokens behind each block.
class Positions {
 public:
  explicit Positions(const BlockStored& event)
      : event_(event),
        width_(event.tokens_per_position),
        count_(std::ssize(*event.token_ids) / width_),
        lookahead_(LookaheadOf(event)) {}

  int64_t count() const { return count_; }
  int64_t lookahead() const { return lookahead_; }
  TokenId At(int64_t position) const {
    return (*event_.token_ids)[static_cast<size_t>(position * width_)];
  }
  // Token `index` behind the block of hash `hash`, from the store's lookahead.
  TokenId Behind(int64_t hash, int64_t index) const {
    if (width_ == 2) return event_.token_ids->back();
    return event_.lookahead->token_ids[static_cast<size_t>(hash * lookahead_ + index)];
  }
  // True if the tokens behind a block equal the tokens of the span, as far as the span goes.
  bool Agrees(int64_t hash, int64_t block) const {
    if (width_ == 2) return true;
    for (int64_t i = 0; i < lookahead_; ++i) {
      const int64_t position = (block + 1) * event_.block_size + i;
      if (position < count_ && At(position) != Behind(hash, i)) return false;
    }
    return true;
  }

 private:
  const BlockStored& event_;
  const int64_t width_;
  const int64_t count_;
  const int64_t lookahead_;
};

}  // namespace

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
    const auto* bytes = std::get_if<Bytes>(&keys[i].value);
    if (i == 0 && text != nullptr && event.lora_name && *text == *event.lora_name) continue;
    if (const ExtraKeyList* item = AsItem(keys[i])) {
      ++items;
      last_item = item;
      if (OffsetOf(*item) >= 0) content.items.push_back({OffsetOf(*item), IdentifierOf(*item)});
    } else if (text != nullptr && first_block && content.salt.empty()) {
      content.salt = *text;
    } else if (bytes != nullptr && !bytes->data.empty() && content.embeddings.empty()) {
      content.embeddings = bytes->data;
    } else {
      content.hidden = true;
    }
  }
  const int64_t end = event.block_size + LookaheadOf(event);
  for (const ItemStart& item : content.items) content.hidden |= item.position >= end;
  // If output tokens complete a block with several items, the engine hashes only the last item. The
  // event looks the same if the prompt fills the block. If the last item continues in the next
  // block, the prompt filled this block.
  if (items > 1 && OffsetOf(*last_item) >= 0) {
    content.hidden |= !ContinuesInNextBlock(event, index, *last_item);
  }
  return content;
}

bool HasEmbeddings(const BlockStored& event) {
  if (!event.extra_keys) return false;
  return std::ranges::any_of(*event.extra_keys, [](const std::optional<ExtraKeys>& keys) {
    return keys && std::ranges::any_of(*keys, [](const ExtraKey& key) {
             const auto* bytes = std::get_if<Bytes>(&key.value);
             return bytes != nullptr && !bytes->data.empty();
           });
  });
}

int64_t LookaheadOf(const BlockStored& event) {
  if (event.lookahead) return event.lookahead->width;
  return event.tokens_per_position - 1;
}

bool HasUsableTokens(const BlockStored& event) {
  if (!event.token_ids || event.token_ids->empty()) return false;
  if (event.block_size < 1 || event.block_size > kMaxBlockSize) return false;
  const std::vector<TokenId>& tokens = *event.token_ids;
  const int64_t width = event.tokens_per_position;
  if (width != 1 && width != 2) return false;
  if (std::ssize(tokens) % (event.block_size * width) != 0) return false;
  if (std::ssize(event.block_hashes) > std::ssize(tokens) / (event.block_size * width))
    return false;
  if (event.token_offset && (*event.token_offset < 0 || *event.token_offset > kMaxOffset)) {
    return false;
  }
  if (event.extra_keys && event.extra_keys->size() != event.block_hashes.size()) return false;
  if (event.lookahead) {
    const LookaheadTokens& lookahead = *event.lookahead;
    if (width != 1 || lookahead.width < 0 || lookahead.width > kMaxLookahead) return false;
    if (lookahead.token_ids.size() !=
        event.block_hashes.size() * static_cast<size_t>(lookahead.width)) {
      return false;
    }
  }
  // Pairs overlap: (a, b), (b, c).
  for (size_t i = 1; width == 2 && i + 1 < tokens.size(); i += 2) {
    if (tokens[i] != tokens[i + 1]) return false;
  }
  return true;
}

template <typename TokenAt>
std::optional<ContentKey> StoreReader::ExtendByBlock(ContentKey state, TokenRange range,
                                                     std::span<const ItemStart> items,
                                                     TokenAt&& token_at) {
  size_t item = 0;
  while (item < items.size() && items[item].position < range.begin) ++item;
  window_.clear();
  for (int64_t position = range.begin; position < range.end; ++position) {
    for (; item < items.size() && items[item].position == position; ++item) {
      state = keys_.Extend(state, window_);
      window_.clear();
      state = keys_.AddItem(state, items[item].identifier);
    }
    window_.push_back(token_at(position));
  }
  // Engines do not send items out of order.
  if (item < items.size()) return std::nullopt;
  return keys_.Extend(state, window_);
}

// Computes the contents at the ends of the span's blocks, as far as the event determines them.
void StoreReader::ReadBlocks(const BlockStored& event, const SpanStart& start,
                             std::span<const int64_t> hash_of, StoreContent& content) {
  const Positions positions(event);
  const int64_t size = event.block_size;
  const int64_t lookahead = positions.lookahead();
  ends_.assign(hash_of.size(), kUnnamed);
  // The content that the parent's hash covers. The parent is the block before the span.
  ContentKey state = start.at_root ? kUnnamed : keys_.Unmark(start.parent, lookahead);
  for (int64_t block = 0; block < std::ssize(hash_of); ++block) {
    const int64_t hash = hash_of[static_cast<size_t>(block)];
    // The event has extra keys only for blocks that have a hash in the event. It has tokens behind
    // the last block of the span only if that block has a hash.
    const bool shown = hash != kNoBlock || !event.extra_keys;
    const bool covered = hash != kNoBlock || (block + 1) * size + lookahead <= positions.count();
    if (!shown || !covered) return;
    if (hash != kNoBlock && !positions.Agrees(hash, block)) {
      content.bad = true;
      return;
    }
    const bool first = start.at_root && block == 0;
    BlockContent own;
    if (hash != kNoBlock || first) {
      own = ReadBlockContent(event, static_cast<size_t>(std::max<int64_t>(hash, 0)), first);
    }
    if (own.hidden) {
      content.reason = UnnamedReason::kHiddenContent;
      return;
    }
    if (first) state = keys_.Root({event.lora_name.value_or(""), own.salt});
    if (!own.embeddings.empty()) {
      state = keys_.AddEmbeddings(
          state, {reinterpret_cast<const uint8_t*>(own.embeddings.data()), own.embeddings.size()});
    }
    const auto token_at = [&](int64_t offset) {
      const int64_t position = block * size + offset;
      return position < positions.count() ? positions.At(position)
                                          : positions.Behind(hash, position - (block + 1) * size);
    };
    // `state` already contains the tokens that the hash of the previous block covers.
    const TokenRange range = {.begin = first ? 0 : lookahead, .end = size + lookahead};
    const auto extended = ExtendByBlock(state, range, own.items, token_at);
    if (!extended) {
      content.reason = UnnamedReason::kHiddenContent;
      return;
    }
    state = *extended;
    ends_[static_cast<size_t>(block)] = keys_.Mark(state, lookahead);
  }
}

// Finds the blocks of the hashes whose content is known. REQUIRES: ReadBlocks has set ends_.
void StoreReader::PlaceByContent(const Known& known) {
  block_of_content_.clear();
  for (size_t i = 0; i < block_of_.size(); ++i) {
    const ContentKey content = known(i);
    if (content == kUnnamed) continue;
    if (block_of_content_.empty()) {
      for (size_t block = 0; block < ends_.size(); ++block) {
        block_of_content_.try_emplace(ends_[block], static_cast<int64_t>(block));
      }
    }
    const auto block = block_of_content_.find(content);
    if (block != block_of_content_.end()) block_of_[i] = block->second;
  }
}

// Finds the blocks of a sparse store. False: the blocks contradict each other or the rule.
bool StoreReader::Place(const BlockStored& event, const SpanStart& start, const Known& known,
                        const SparseRule* rule, const GroupSpec* spec, StoreContent& content) {
  const auto blocks = std::ssize(hash_of_);
  block_of_.assign(event.block_hashes.size(), kNoBlock);
  // Without extra keys, the content of every block of the span is known, including blocks without a
  // hash.
  if (!event.extra_keys) {
    ReadBlocks(event, start, hash_of_, content);
    PlaceByContent(known);
  }
  if (!PlaceByCounting(blocks, block_of_)) return false;
  const bool ruled = rule != nullptr && spec != nullptr && spec->block_size == event.block_size;
  if (ruled && (start.at_root || event.token_offset)) {
    const int64_t first = event.token_offset.value_or(0);
    if (first % event.block_size == 0 &&
        !PlaceByRule(*rule, *spec, first / event.block_size, blocks, block_of_)) {
      content.rule_refuted = true;
      return false;
    }
  }
  for (size_t i = 0; i < block_of_.size(); ++i) {
    if (block_of_[i] != kNoBlock) {
      hash_of_[static_cast<size_t>(block_of_[i])] = static_cast<int64_t>(i);
    }
  }
  return true;
}

ContentKey StoreReader::ParentFromBehind(const BlockStored& event, const Known& known) const {
  // With items or lookahead, Retract alone does not undo the extension.
  const bool plain = !event.extra_keys && LookaheadOf(event) == 0;
  for (size_t i = 0; plain && i < event.block_hashes.size(); ++i) {
    const ContentKey content = known(i);
    if (content == kUnnamed) continue;
    const size_t tokens = (i + 1) * static_cast<size_t>(event.block_size);
    return keys_.Retract(content, std::span(*event.token_ids).first(tokens));
  }
  return kUnnamed;
}

namespace {

// Sets `content` to the content of a store without tokens.
void Reset(size_t hashes, bool proven, StoreContent& content) {
  content.parent = kUnnamed;
  content.contents.assign(hashes, kUnnamed);
  content.bad = content.rule_refuted = content.dense = false;
  content.proven = proven;
  content.reason = UnnamedReason::kNoTokens;
}

}  // namespace

void StoreReader::Read(const BlockStored& event, const SpanStart& told, const Known& known,
                       const SparseRule* rule, const GroupSpec* spec, StoreContent& content) {
  const size_t hashes = event.block_hashes.size();
  Reset(hashes, told.proven, content);
  if (hashes == 0) return;
  if (!HasUsableTokens(event)) {
    content.bad = event.token_ids && !event.token_ids->empty();
    return;
  }
  const int64_t blocks = BlocksOf(event);
  const bool dense = content.dense = static_cast<int64_t>(hashes) == blocks;
  content.reason = UnnamedReason::kUnknownParent;
  SpanStart start = told;
  if (!start.at_root && start.parent == kUnnamed) {
    if (dense) start.parent = content.parent = ParentFromBehind(event, known);
    if (start.parent == kUnnamed) return;
    content.proven = false;
  }
  if (start.at_root && event.lora_id && !event.lora_name) {
    content.reason = UnnamedReason::kHiddenContent;
    return;
  }
  const bool plain =
      dense && !event.extra_keys && !event.lookahead && event.tokens_per_position == 1;
  if (plain) {
    const ContentKey state = start.at_root
                                 ? keys_.Root({event.lora_name.value_or(""), CacheSaltOf(event)})
                                 : start.parent;
    keys_.ExtendBy(state, *event.token_ids, static_cast<size_t>(event.block_size),
                   content.contents);
    return;
  }
  hash_of_.assign(static_cast<size_t>(blocks), kNoBlock);
  if (dense) {
    for (int64_t i = 0; i < blocks; ++i) hash_of_[static_cast<size_t>(i)] = i;
  } else {
    content.reason = UnnamedReason::kSparse;
    if (!Place(event, start, known, rule, spec, content)) {
      content.bad = !content.rule_refuted;
      return;
    }
  }
  ReadBlocks(event, start, hash_of_, content);
  for (size_t block = 0; block < hash_of_.size(); ++block) {
    if (hash_of_[block] == kNoBlock) continue;
    content.contents[static_cast<size_t>(hash_of_[block])] = ends_[block];
  }
}

}  // namespace kvcast::router
