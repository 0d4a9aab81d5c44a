// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cached_block_map.h"

#include "src/base/check.h"

namespace kvcast::engine {

CachedBlockMap::CachedBlockMap(uint32_t num_blocks) : table_(num_blocks), first_(num_blocks) {
  KV_CHECK(num_blocks < kMore);
}

uint32_t CachedBlockMap::FindEntry(const BlockKey& key, BlockId block) const {
  const uint32_t* found = FindFirst(key);
  uint32_t number = found == nullptr ? kNone : *found;
  while (number != kNone && at(number).block != block) number = at(number).next_of_key;
  return number;
}

std::optional<BlockId> CachedBlockMap::Find(const BlockKey& key) const {
  const uint32_t* found = FindFirst(key);
  if (found == nullptr) return std::nullopt;
  return at(*found).block;
}

bool CachedBlockMap::Contains(const BlockKey& key, BlockId block) const {
  return FindEntry(key, block) != kNone;
}

bool CachedBlockMap::Insert(const BlockKey& key, BlockId block, int64_t covered_tokens) {
  KV_DCHECK(!Contains(key, block));
  const uint32_t number = NewEntry(block);
  Entry& entry = at(number);
  entry.key = key;
  entry.block = block;
  entry.covered_tokens = covered_tokens;
  entry.next_of_block = kNone;
  if (number >= kMore) AppendToBlock(number);
  return AppendToKey(number);
}

uint32_t CachedBlockMap::NewEntry(BlockId block) {
  ++num_entries_;
  if (!HasKeys(block)) return block.value;
  if (first_unused_ == kNone) {
    more_.emplace_back();
    return static_cast<uint32_t>(more_.size() - 1) + kMore;
  }
  const uint32_t number = first_unused_;
  first_unused_ = at(number).next_of_key;
  return number;
}

void CachedBlockMap::FreeEntry(uint32_t number) {
  --num_entries_;
  at(number).key.digest.size = 0;
  if (number < kMore) return;
  at(number).next_of_key = first_unused_;
  first_unused_ = number;
}

void CachedBlockMap::AppendToBlock(uint32_t number) {
  uint32_t last = at(number).block.value;
  while (at(last).next_of_block != kNone) last = at(last).next_of_block;
  at(last).next_of_block = number;
}

bool CachedBlockMap::AppendToKey(uint32_t number) {
  const BlockKey& key = at(number).key;
  at(number).next_of_key = kNone;
  const uint64_t hash = HashOf(key);
  // The entry itself is not in the table yet.
  const uint32_t* found = FindFirst(key);
  if (found == nullptr) {
    table_.Insert(hash, number);
    return true;
  }
  uint32_t last = *found;
  while (at(last).next_of_key != kNone) last = at(last).next_of_key;
  at(last).next_of_key = number;
  return false;
}

bool CachedBlockMap::UnlinkFromKey(uint32_t number) {
  uint32_t* found = FindFirst(at(number).key);
  KV_CHECK(found != nullptr);
  uint32_t* link = found;
  while (*link != number) {
    KV_CHECK(*link != kNone);
    link = &at(*link).next_of_key;
  }
  const uint32_t next = at(number).next_of_key;
  const bool only = link == found && next == kNone;
  if (only) {
    table_.Erase(found);
  } else {
    *link = next;
  }
  return only;
}

void CachedBlockMap::MoveKeys(BlockId from, BlockId to) {
  KV_CHECK(!HasKeys(to));
  if (!HasKeys(from)) return;
  // The new holder becomes the last block in the list of each key.
  uint32_t number = from.value;
  while (number != kNone) {
    const uint32_t next = at(number).next_of_block;
    UnlinkFromKey(number);
    if (number == from.value) {
      first_[to.value] = first_[from.value];
      first_[from.value].key.digest.size = 0;
      number = to.value;
    }
    at(number).block = to;
    AppendToKey(number);
    number = next;
  }
}

void CachedBlockMap::Clear() {
  table_.Clear();
  for (Entry& entry : first_) entry.key.digest.size = 0;
  more_.clear();
  first_unused_ = kNone;
  num_entries_ = 0;
}

void CachedBlockMap::ForEachKey(
    const std::function<void(const BlockKey&, int64_t copies)>& visit) const {
  table_.ForEach([&](uint32_t first) {
    int64_t copies = 0;
    for (uint32_t number = first; number != kNone; number = at(number).next_of_key) ++copies;
    visit(at(first).key, copies);
  });
}

bool CachedBlockMap::IsConsistent() const {
  size_t from_blocks = 0;
  for (uint32_t block = 0; block < first_.size(); ++block) {
    uint32_t number = HasKeys(BlockId(block)) ? block : kNone;
    for (; number != kNone; number = at(number).next_of_block) {
      ++from_blocks;
      if (at(number).block != BlockId(block)) return false;
      if (FindEntry(at(number).key, BlockId(block)) != number) return false;
    }
  }
  size_t from_keys = 0;
  bool same_key = true;
  table_.ForEach([&](uint32_t first) {
    for (uint32_t number = first; number != kNone; number = at(number).next_of_key) {
      ++from_keys;
      same_key = same_key && at(number).key == at(first).key;
    }
  });
  return same_key && from_blocks == from_keys && from_keys == num_entries_;
}

}  // namespace kvcast::engine
