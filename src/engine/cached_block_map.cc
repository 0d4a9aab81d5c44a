// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cached_block_map.h"

#include <absl/container/flat_hash_map.h>

#include "src/base/check.h"

namespace kvcast::engine {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

struct KeyHash {
  size_t operator()(const BlockKey& key) const { return HashOf(key); }
};

// One (key, block). Records of one key form a list in order of insertion; so do those of a block.
struct Record {
  BlockKey key;
  BlockId block;
  int64_t covered_tokens = 0;
  uint32_t next_of_key = kNone;
  uint32_t next_of_block = kNone;
};

}  // namespace

class CachedBlockMap::Impl {
 public:
  explicit Impl(uint32_t num_blocks) : first_of_block(num_blocks, kNone) {
    first_of_key.reserve(num_blocks);
    records.reserve(num_blocks);
  }

  uint32_t FindRecord(const BlockKey& key, BlockId block) const {
    const auto found = first_of_key.find(key);
    uint32_t at = found == first_of_key.end() ? kNone : found->second;
    while (at != kNone && records[at].block != block) at = records[at].next_of_key;
    return at;
  }

  uint32_t NewRecord(Record record) {
    ++num_records;
    if (first_free == kNone) {
      records.push_back(record);
      return static_cast<uint32_t>(records.size() - 1);
    }
    const uint32_t at = first_free;
    first_free = records[at].next_of_key;
    records[at] = record;
    return at;
  }

  void FreeRecord(uint32_t at) {
    --num_records;
    records[at].next_of_key = first_free;
    first_free = at;
  }

  // The key is dropped with its last block.
  void UnlinkFromKey(uint32_t at) {
    const auto found = first_of_key.find(records[at].key);
    KV_CHECK(found != first_of_key.end());
    uint32_t* link = &found->second;
    while (*link != at) {
      KV_CHECK(*link != kNone);
      link = &records[*link].next_of_key;
    }
    *link = records[at].next_of_key;
    if (found->second == kNone) first_of_key.erase(found);
  }

  void AppendToKey(const BlockKey& key, uint32_t at) {
    const auto [entry, inserted] = first_of_key.try_emplace(key, at);
    if (inserted) return;
    uint32_t last = entry->second;
    while (records[last].next_of_key != kNone) last = records[last].next_of_key;
    records[last].next_of_key = at;
  }

  void AppendToBlock(BlockId block, uint32_t at) {
    uint32_t* link = &first_of_block[block.value];
    while (*link != kNone) link = &records[*link].next_of_block;
    *link = at;
  }

  absl::flat_hash_map<BlockKey, uint32_t, KeyHash> first_of_key;
  std::vector<Record> records;
  std::vector<uint32_t> first_of_block;
  uint32_t first_free = kNone;  // linked through next_of_key
  size_t num_records = 0;
};

CachedBlockMap::CachedBlockMap(uint32_t num_blocks) : impl_(std::make_unique<Impl>(num_blocks)) {}

CachedBlockMap::~CachedBlockMap() = default;

std::optional<BlockId> CachedBlockMap::Find(const BlockKey& key) const {
  const auto found = impl_->first_of_key.find(key);
  if (found == impl_->first_of_key.end()) return std::nullopt;
  return impl_->records[found->second].block;
}

bool CachedBlockMap::Contains(const BlockKey& key, BlockId block) const {
  return impl_->FindRecord(key, block) != kNone;
}

void CachedBlockMap::Insert(const BlockKey& key, BlockId block, int64_t covered_tokens) {
  KV_DCHECK(!Contains(key, block));
  const uint32_t at = impl_->NewRecord({key, block, covered_tokens, kNone, kNone});
  impl_->AppendToKey(key, at);
  impl_->AppendToBlock(block, at);
}

bool CachedBlockMap::HasKeys(BlockId block) const {
  return impl_->first_of_block[block.value] != kNone;
}

const BlockKey& CachedBlockMap::PrimaryKey(BlockId block) const {
  return impl_->records[impl_->first_of_block[block.value]].key;
}

int64_t CachedBlockMap::PrimaryCoveredTokens(BlockId block) const {
  return impl_->records[impl_->first_of_block[block.value]].covered_tokens;
}

void CachedBlockMap::RemoveBlock(BlockId block,
                                 const std::function<void(const BlockKey&)>& removed) {
  uint32_t at = impl_->first_of_block[block.value];
  impl_->first_of_block[block.value] = kNone;
  while (at != kNone) {
    const uint32_t next = impl_->records[at].next_of_block;
    impl_->UnlinkFromKey(at);
    removed(impl_->records[at].key);
    impl_->FreeRecord(at);
    at = next;
  }
}

void CachedBlockMap::MoveKeys(BlockId from, BlockId to) {
  KV_CHECK(!HasKeys(to));
  uint32_t at = impl_->first_of_block[from.value];
  impl_->first_of_block[to.value] = at;
  impl_->first_of_block[from.value] = kNone;
  for (; at != kNone; at = impl_->records[at].next_of_block) {
    // The new holder is the last one inserted under the key.
    impl_->UnlinkFromKey(at);
    impl_->records[at].block = to;
    impl_->records[at].next_of_key = kNone;
    impl_->AppendToKey(impl_->records[at].key, at);
  }
}

void CachedBlockMap::Clear() {
  impl_->first_of_key.clear();
  impl_->records.clear();
  impl_->first_of_block.assign(impl_->first_of_block.size(), kNone);
  impl_->first_free = kNone;
  impl_->num_records = 0;
}

size_t CachedBlockMap::num_keys() const { return impl_->first_of_key.size(); }

size_t CachedBlockMap::num_entries() const { return impl_->num_records; }

void CachedBlockMap::ForEachKey(
    const std::function<void(const BlockKey&, int64_t copies)>& visit) const {
  for (const auto& [key, first] : impl_->first_of_key) {
    int64_t copies = 0;
    for (uint32_t at = first; at != kNone; at = impl_->records[at].next_of_key) ++copies;
    visit(key, copies);
  }
}

bool CachedBlockMap::IsConsistent() const {
  size_t from_blocks = 0;
  for (uint32_t block = 0; block < impl_->first_of_block.size(); ++block) {
    uint32_t at = impl_->first_of_block[block];
    for (; at != kNone; at = impl_->records[at].next_of_block) {
      ++from_blocks;
      if (impl_->records[at].block != BlockId(block)) return false;
      if (impl_->FindRecord(impl_->records[at].key, BlockId(block)) != at) return false;
    }
  }
  size_t from_keys = 0;
  for (const auto& [key, first] : impl_->first_of_key) {
    for (uint32_t at = first; at != kNone; at = impl_->records[at].next_of_key) {
      ++from_keys;
      if (!(impl_->records[at].key == key)) return false;
    }
  }
  return from_blocks == from_keys && from_keys == impl_->num_records;
}

}  // namespace kvcast::engine
