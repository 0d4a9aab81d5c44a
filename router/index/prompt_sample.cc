// SPDX-License-Identifier: Apache-2.0
#include "router/index/prompt_sample.h"

#include <algorithm>
#include <bit>
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

size_t PromptSample::Generation::SlotOf(ContentKey content) const {
  const size_t mask = table.size() - 1;
  size_t slot = (content ^ content >> 32) & mask;
  while (table[slot] != kRoot && nodes[table[slot]].content != content) slot = (slot + 1) & mask;
  return slot;
}

// The present generation, which is empty.
void PromptSample::Open(uint64_t held) {
  Generation& now = present();
  now.max_nodes = std::clamp<size_t>(held / kBlocksANode, kMinNodes, kMaxNodes);
  now.nodes.reserve(now.max_nodes);
  now.table.assign(std::bit_ceil(now.max_nodes * 2), kRoot);
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
  uint16_t at = kRoot;
  if (!store.start.at_root) {
    at = present().Find(store.start.parent);
    if (at == kRoot) {
      const uint16_t old = generations_[0].Find(store.start.parent);
      if (old != kRoot) generations_[0].nodes[old].cut = 1;
      return;
    }
    Node& node = present().nodes[at];
    // The end of a path is followed even without credits, so that it is the end of its prompt.
    const bool goes_on = node.child == kRoot || (node.stored >> store.group & 1) != 0;
    if (credits_ <= (goes_on ? -static_cast<int64_t>(kMaxNodes) : 0)) {
      node.cut = 1;
      return;
    }
  }
  const auto units = static_cast<size_t>(store.event.block_size / unit_);
  const size_t more = store.event.block_hashes.size() * units;
  if (!present().nodes.empty() && present().nodes.size() + more > present().max_nodes) {
    if (at != kRoot) present().nodes[at].cut = 1;
    Rotate();
    if (at != kRoot) return;
  }
  if (present().nodes.empty()) Open(store.held);
  FollowBlocks(store, keys, at);
}

void PromptSample::FollowBlocks(const Store& store, const ContentKeys& keys, uint16_t at) {
  const BlockStored& event = store.event;
  const auto stride = static_cast<size_t>(event.block_size);
  const auto unit = static_cast<size_t>(unit_);
  const bool readable = stride > unit && store.lookahead == 0 && HasTokensOfBlocks(event);
  ContentKey before = store.start.at_root ? keys.Root(ScopeOf(event)) : store.start.parent;
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
        if (at == kRoot) return;
        followed += unit;
        note_first();
      }
    }
    at = Step(at, content, static_cast<uint32_t>(stride - followed), store.group);
    if (at == kRoot) return;
    note_first();
    before = content;
  }
}

uint16_t PromptSample::Step(uint16_t at, ContentKey content, uint32_t tokens, uint8_t group) {
  --credits_;
  Generation& now = present();
  const size_t slot = now.SlotOf(content);
  if (now.table[slot] == kRoot) {
    if (now.full()) {
      if (at != kRoot) now.nodes[at].cut = 1;
      return kRoot;
    }
    const auto next = static_cast<uint16_t>(now.nodes.size());
    now.table[slot] = next;
    const uint32_t end = (at == kRoot ? 0 : now.nodes[at].end) + tokens;
    now.nodes.push_back({.content = content, .end = end, .parent = at, .child = kRoot});
    AddToFilter(content);
    if (at != kRoot) {
      Node& parent = now.nodes[at];
      if (parent.child == kRoot) {
        parent.child = next;
      } else if (now.nodes[parent.child].end == end) {
        parent.repeated = 1;
      }
    }
  }
  Node& node = now.nodes[now.table[slot]];
  const uint32_t bit = uint32_t{1} << group;
  if ((node.stored & bit) != 0) node.repeated = 1;
  node.stored |= bit;
  return now.table[slot];
}

void PromptSample::NoteStart(uint16_t node, const Store& store, const ContentKeys& keys) {
  if (!store.event.token_ids) return;
  const auto tokens = std::span<const TokenId>(*store.event.token_ids);
  const size_t count = std::min<size_t>(tokens.size(), present().nodes[node].end);
  present().starts.push_back({.node = node,
                              .tokens = keys.Extend(keys.Root({}), tokens.first(count)),
                              .scope = keys.Root(ScopeOf(store.event))});
}

void PromptSample::MarkRemoved(ContentKey content, uint8_t group) {
  for (Generation& generation : generations_) {
    const uint16_t found = generation.Find(content);
    if (found != kRoot) generation.nodes[found].removed |= uint32_t{1} << group;
  }
}

}  // namespace kvcast::router
