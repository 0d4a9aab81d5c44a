// SPDX-License-Identifier: Apache-2.0
#include "src/engine/block_pool.h"

#include <string>

#include "src/base/check.h"

namespace kvcast::engine {

BlockPool::BlockPool(const PoolOptions& options)
    : options_(options),
      refs_(static_cast<size_t>(options.num_blocks), 0),
      free_(static_cast<uint32_t>(options.num_blocks)),
      cached_(static_cast<uint32_t>(options.num_blocks)),
      events_(options.emit_events, options.hash_form, options.medium) {
  KV_CHECK(options.num_blocks >= 1 && options.hash_unit > 0);
  KV_CHECK(free_.PopFront() == kNullBlock);
}

void BlockPool::RemoveKeys(BlockId block) {
  cached_.RemoveBlock(block, [this](const BlockKey& key) { events_.AddRemoved(key); });
}

void BlockPool::Allocate(int64_t n, std::vector<BlockId>& out) {
  KV_CHECK(n <= free_.size());
  for (int64_t i = 0; i < n; ++i) {
    const BlockId block = free_.PopFront();
    KV_CHECK(ref_count(block) == 0);
    if (cached_.HasKeys(block)) RemoveKeys(block);
    refs_[block.value] = 1;
    out.push_back(block);
  }
}

void BlockPool::Touch(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (block == kNullBlock) continue;
    if (ref_count(block) == 0) free_.Remove(block);
    ++refs_[block.value];
  }
}

void BlockPool::Free(std::span<const BlockId> blocks) {
  to_head_.clear();
  to_tail_.clear();
  for (const BlockId block : blocks) {
    if (block == kNullBlock) continue;
    KV_CHECK(ref_count(block) > 0);
    if (--refs_[block.value] > 0) continue;
    const bool to_tail = cached_.HasKeys(block) || !options_.reuse_uncached_first;
    (to_tail ? to_tail_ : to_head_).push_back(block);
  }
  free_.Prepend(to_head_);
  free_.Append(to_tail_);
}

void BlockPool::CacheFullBlocks(const FullBlocks& blocks) {
  if (blocks.begin >= blocks.end) return;
  const int64_t units = blocks.block_size / options_.hash_unit;
  digests_.clear();
  begins_.clear();
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    const BlockId block = blocks.table[static_cast<size_t>(i)];
    if (block == kNullBlock) continue;
    if (blocks.keep != nullptr && !blocks.keep->Test(i - blocks.begin)) continue;
    const int64_t covered = (i + 1) * blocks.block_size;
    if (cached_.HasKeys(block)) {
      KV_CHECK(cached_.PrimaryCoveredTokens(block) < covered);
      RemoveKeys(block);
    }
    const Digest& digest = BlockDigest(blocks.request.chain, i, units);
    cached_.Insert({digest, blocks.group}, block, covered);
    digests_.push_back(&digest);
    begins_.push_back(i * blocks.block_size);
  }
  if (events_.enabled()) AnnounceFullBlocks(blocks);
}

void BlockPool::AnnounceFullBlocks(const FullBlocks& blocks) {
  const int64_t units = blocks.block_size / options_.hash_unit;
  const Digest* parent = nullptr;
  if (blocks.begin > 0) parent = &BlockDigest(blocks.request.chain, blocks.begin - 1, units);
  events_.AddStored({blocks.request, blocks.group, blocks.block_size,
                     blocks.begin * blocks.block_size, blocks.end * blocks.block_size, parent,
                     begins_, digests_});
}

std::optional<BlockKey> BlockPool::CachePartialBlock(const PartialBlock& partial) {
  const int64_t unit = options_.hash_unit;
  const int64_t end = partial.prefix_tokens;
  const auto hashed = static_cast<int64_t>(partial.request.chain.size()) * unit;
  if (partial.block == kNullBlock || end <= 0 || end > hashed) return std::nullopt;
  if (end % unit != 0 || end % partial.block_size == 0) return std::nullopt;

  const std::vector<Digest>& chain = partial.request.chain;
  const auto last = static_cast<size_t>(end / unit - 1);
  const BlockKey key{chain[last], partial.group};
  if (cached_.Contains(key, partial.block)) return key;
  if (cached_.HasKeys(partial.block) && cached_.PrimaryCoveredTokens(partial.block) < end) {
    RemoveKeys(partial.block);
  }
  cached_.Insert(key, partial.block, end);
  const Digest* digest = &chain[last];
  const int64_t begin = end - unit;
  events_.AddStored({partial.request,
                     partial.group,
                     unit,
                     begin,
                     end,
                     last == 0 ? nullptr : &chain[last - 1],
                     {&begin, 1},
                     {&digest, 1}});
  return key;
}

void BlockPool::ReportBlocks(const CacheRequest& request, GroupIdx group, int64_t block_size,
                             int64_t count) {
  if (!events_.enabled() || count <= 0) return;
  const int64_t units = block_size / options_.hash_unit;
  // A hit that ends inside a block has no hash for that block.
  const auto whole = static_cast<int64_t>(request.chain.size()) / units;
  if (count > whole) count = whole;
  digests_.clear();
  begins_.clear();
  for (int64_t i = 0; i < count; ++i) {
    digests_.push_back(&BlockDigest(request.chain, i, units));
    begins_.push_back(i * block_size);
  }
  events_.AddStored(
      {request, group, block_size, 0, count * block_size, nullptr, begins_, digests_});
}

void BlockPool::Evict(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    KV_CHECK(block.value < refs_.size());
    RemoveKeys(block);
  }
}

bool BlockPool::Reset() {
  if (num_free() != num_blocks() - 1) return false;
  cached_.Clear();
  events_.AddCleared();
  return true;
}

Status BlockPool::CheckInvariants() const {
  const auto broken = [](const std::string& what) { return Status(StatusCode::kInternal, what); };
  if (free_.Contains(kNullBlock)) return broken("the null block is in the free queue");
  if (cached_.HasKeys(kNullBlock)) return broken("the null block is cached");
  int64_t queued = 0;
  for (uint32_t i = 1; i < refs_.size(); ++i) {
    const bool in_queue = free_.Contains(BlockId(i));
    queued += in_queue ? 1 : 0;
    if (in_queue != (refs_[i] == 0)) {
      return broken("block " + std::to_string(i) + ": queued and referenced disagree");
    }
  }
  if (queued != num_free() || static_cast<int64_t>(FreeList().size()) != queued) {
    return broken("the free queue's size differs from its length");
  }
  if (!cached_.IsConsistent()) return broken("the cached-block map contradicts itself");
  if (!options_.enable_caching && cached_.num_entries() != 0) {
    return broken("blocks are cached although caching is off");
  }
  return {};
}

}  // namespace kvcast::engine
