// SPDX-License-Identifier: Apache-2.0
#include "src/engine/free_block_queue.h"

#include "src/base/check.h"

namespace kvcast::engine {

FreeBlockQueue::FreeBlockQueue(uint32_t num_blocks)
    : links_(num_blocks + size_t{2}),
      sentinel_(num_blocks),
      divider_(num_blocks + 1),
      size_(num_blocks) {
  for (uint32_t i = 0; i < num_blocks; ++i) links_[i] = {i - 1, i + 1};
  const uint32_t first = num_blocks == 0 ? divider_ : 0;
  const uint32_t last = num_blocks == 0 ? sentinel_ : num_blocks - 1;
  links_[first].prev = sentinel_;
  links_[last].next = divider_;
  links_[sentinel_] = {divider_, first};
  links_[divider_] = {last, sentinel_};
}

uint32_t FreeBlockQueue::After(uint32_t position) const {
  const uint32_t next = links_[position].next;
  return next == divider_ ? links_[divider_].next : next;
}

BlockId FreeBlockQueue::PopFront() {
  KV_CHECK(size_ > 0);
  const BlockId id(After(sentinel_));
  Remove(id);
  return id;
}

void FreeBlockQueue::Remove(BlockId id) {
  KV_CHECK(id.value < sentinel_ && Contains(id));
  Link& link = links_[id.value];
  links_[link.prev].next = link.next;
  links_[link.next].prev = link.prev;
  link = {kNotQueued, kNotQueued};
  --size_;
}

void FreeBlockQueue::InsertBefore(uint32_t position, BlockId id) {
  KV_CHECK(id.value < sentinel_ && !Contains(id));
  const uint32_t before = links_[position].prev;
  links_[id.value] = {before, position};
  links_[before].next = id.value;
  links_[position].prev = id.value;
  ++size_;
}

void FreeBlockQueue::Append(std::span<const BlockId> ids) {
  for (const BlockId id : ids) InsertBefore(sentinel_, id);
}

void FreeBlockQueue::Prepend(std::span<const BlockId> ids) {
  const uint32_t head = links_[sentinel_].next;
  for (const BlockId id : ids) InsertBefore(head, id);
}

void FreeBlockQueue::InsertEarly(std::span<const BlockId> ids) {
  for (const BlockId id : ids) InsertBefore(divider_, id);
}

std::optional<BlockId> FreeBlockQueue::Next(std::optional<BlockId> after) const {
  KV_CHECK(!after || Contains(*after));
  const uint32_t next = After(after ? after->value : sentinel_);
  if (next == sentinel_) return std::nullopt;
  return BlockId(next);
}

std::vector<BlockId> FreeBlockQueue::List() const {
  std::vector<BlockId> ids;
  for (uint32_t i = After(sentinel_); i != sentinel_; i = After(i)) {
    ids.push_back(BlockId(i));
  }
  return ids;
}

}  // namespace kvcast::engine
