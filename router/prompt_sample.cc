// SPDX-License-Identifier: Apache-2.0
#include "router/prompt_sample.h"

#include <algorithm>
#include <utility>

namespace kvcast::router {
namespace {

ContentScope ScopeOf(const BlockStored& event) {
  ContentScope scope = {.lora_name = {}, .cache_salt = CacheSaltOf(event)};
  if (event.lora_name) scope.lora_name = *event.lora_name;
  if (scope.cache_salt.empty()) scope.cache_salt = ReadBlockContent(event, 0, true).salt;
  return scope;
}

bool HasTokensOfBlocks(const BlockStored& event) {
  return event.tokens_per_position == 1 && event.token_ids &&
         std::ssize(*event.token_ids) == std::ssize(event.block_hashes) * event.block_size;
}

}  // namespace

void PromptSample::AddToFilter(ContentKey content) {
  const size_t nodes = generations_[0].nodes.size() + generations_[1].nodes.size();
  if (filter_.size() * 64 < nodes * kFilterBitsANode || filter_.empty()) {
    MakeFilter(std::max(kFilterBits, filter_.size() * 128));
  }
  filter_[BitOf(content) / 64] |= uint64_t{1} << BitOf(content) % 64;
}

void PromptSample::MakeFilter(size_t bits) {
  filter_.assign(bits / 64, 0);
  for (const Generation& generation : generations_) {
    for (const Node& node : generation.nodes) {
      filter_[BitOf(node.content) / 64] |= uint64_t{1} << BitOf(node.content) % 64;
    }
  }
}

void PromptSample::Rotate() {
  generations_[0] = std::exchange(generations_[1], {});
  MakeFilter(filter_.size() * 64);
}

void PromptSample::Follow(const Store& store, const ContentKeys& keys) {
  // Paths of another unit name other prefixes.
  if (store.unit != unit_) {
    Clear();
    unit_ = store.unit;
  }
  if (unit_ <= 0 || store.event.block_size % unit_ != 0) return;
  uint32_t at = kRoot;
  if (!store.start.at_root) {
    const auto parent = present().position_of.find(store.start.parent);
    if (parent == present().position_of.end()) {
      const auto old = generations_[0].position_of.find(store.start.parent);
      if (old != generations_[0].position_of.end()) generations_[0].nodes[old->second].cut = true;
      return;
    }
    at = parent->second;
    Node& node = present().nodes[at];
    // The end of a path is followed even without credits, so that it is the end of its prompt.
    const bool goes_on = node.child == kRoot || (node.stored >> store.group & 1) != 0;
    if (credits_ <= (goes_on ? -static_cast<int64_t>(kMaxNodes) : 0)) {
      node.cut = true;
      return;
    }
  }
  const auto units = static_cast<size_t>(store.event.block_size / unit_);
  if (present().nodes.size() + store.event.block_hashes.size() * units > kMaxNodes) {
    if (at != kRoot) present().nodes[at].cut = true;
    Rotate();
    if (at != kRoot || store.event.block_hashes.size() * units > kMaxNodes) return;
  }
  FollowBlocks(store, keys, at);
}

void PromptSample::FollowBlocks(const Store& store, const ContentKeys& keys, uint32_t at) {
  const BlockStored& event = store.event;
  const auto stride = static_cast<size_t>(event.block_size);
  const auto unit = static_cast<size_t>(unit_);
  const bool readable = stride > unit && store.lookahead == 0 && HasTokensOfBlocks(event);
  ContentKey before = store.start.at_root ? keys.Root(ScopeOf(event)) : store.start.parent;
  if (present().nodes.empty()) {
    present().nodes.reserve(kFirstCredits);
    present().position_of.reserve(kFirstCredits);
  }
  const size_t known = present().nodes.size();
  bool first = at == kRoot;
  const auto note_first = [&] {
    if (std::exchange(first, false) && at >= known) NoteStart(at, store, keys);
  };
  for (size_t i = 0; i < store.content.contents.size(); ++i) {
    const ContentKey content = store.content.contents[i];
    if (content == kUnnamed) return;
    size_t followed = 0;  // tokens of the block
    if (readable) {
      inside_.resize(stride / unit);
      const auto tokens = std::span<const TokenId>(*event.token_ids).subspan(i * stride, stride);
      keys.ExtendBy(before, tokens, unit, inside_);
      // With images in it the block is named otherwise, and its inner prefixes are not known.
      for (size_t k = 0; inside_.back() == content && k + 1 < inside_.size(); ++k) {
        at = Step(at, inside_[k], static_cast<uint32_t>(unit), store.group);
        followed += unit;
        note_first();
      }
    }
    at = Step(at, content, static_cast<uint32_t>(stride - followed), store.group);
    note_first();
    before = content;
  }
}

uint32_t PromptSample::Step(uint32_t at, ContentKey content, uint32_t tokens, uint8_t group) {
  --credits_;
  Generation& now = present();
  const auto [entry, added] =
      now.position_of.try_emplace(content, static_cast<uint32_t>(now.nodes.size()));
  const uint32_t next = entry->second;
  if (added) {
    const uint32_t end = (at == kRoot ? 0 : now.nodes[at].end) + tokens;
    now.nodes.push_back({.content = content, .parent = at, .end = end, .child = kRoot});
    AddToFilter(content);
    if (at != kRoot) {
      Node& parent = now.nodes[at];
      if (parent.child == kRoot) {
        parent.child = next;
      } else if (now.nodes[parent.child].end == end) {
        parent.repeated = true;
      }
    }
  }
  Node& node = now.nodes[next];
  const uint64_t bit = uint64_t{1} << group;
  node.repeated = node.repeated || (node.stored & bit) != 0;
  node.stored |= bit;
  return next;
}

void PromptSample::NoteStart(uint32_t node, const Store& store, const ContentKeys& keys) {
  if (!store.event.token_ids) return;
  const auto tokens = std::span<const TokenId>(*store.event.token_ids);
  const size_t count = std::min<size_t>(tokens.size(), present().nodes[node].end);
  present().starts.push_back({.node = node,
                              .tokens = keys.Extend(keys.Root({}), tokens.first(count)),
                              .scope = keys.Root(ScopeOf(store.event))});
}

void PromptSample::MarkRemoved(ContentKey content, uint8_t group) {
  for (Generation& generation : generations_) {
    const auto found = generation.position_of.find(content);
    if (found == generation.position_of.end()) continue;
    generation.nodes[found->second].removed |= uint64_t{1} << group;
  }
}

}  // namespace kvcast::router
