// SPDX-License-Identifier: Apache-2.0
#include "src/engine/block_pool.h"

#include <string>

#include "src/base/check.h"

namespace kvcast::engine {
namespace {

// A block is prefetched this number of blocks before its memory is used.
constexpr int64_t kPrefetchDistance = 8;

}  // namespace

BlockPool::BlockPool(const PoolOptions& options)
    : options_(options),
      refs_(static_cast<size_t>(options.num_blocks), 0),
      adopted_(static_cast<size_t>(options.num_blocks), false),
      free_(static_cast<uint32_t>(options.num_blocks)),
      cached_(static_cast<uint32_t>(options.num_blocks)),
      events_(options.events, options.medium, options.lookahead) {
  KV_CHECK(options.num_blocks >= 1 && options.hash_block_size > 0);
  KV_CHECK(free_.PopFront() == kNullBlock);
}

void BlockPool::RemoveKeys(BlockId block) {
  const bool once = options_.events.announce_once;
  cached_.RemoveBlock(block, [this, once](const BlockKey& key, bool last) {
    if (last || !once) events_.AddRemoved(key);
  });
}

void BlockPool::Allocate(int64_t n, std::vector<BlockId>& out) {
  KV_CHECK(n <= free_.size());
  const auto first = static_cast<int64_t>(out.size());
  // In a large pool, the entry of a block and the table slot of its key are not in the CPU caches.
  // Prefetch both.
  for (int64_t i = 0; i < n + 2 * kPrefetchDistance; ++i) {
    if (i < n) {
      out.push_back(free_.PopFront());
      cached_.Prefetch(out.back());
    }
    if (const int64_t at = i - kPrefetchDistance; at >= 0 && at < n) {
      const BlockId block = out[static_cast<size_t>(first + at)];
      if (cached_.HasKeys(block)) cached_.Prefetch(cached_.PrimaryKey(block));
    }
    if (const int64_t at = i - 2 * kPrefetchDistance; at >= 0) {
      const BlockId block = out[static_cast<size_t>(first + at)];
      KV_CHECK(ref_count(block) == 0);
      if (cached_.HasKeys(block)) RemoveKeys(block);
      refs_[block.value] = 1;
      adopted_[block.value] = false;
    }
  }
}

void BlockPool::Touch(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (block == kNullBlock) continue;
    if (ref_count(block) == 0) free_.Remove(block);
    ++refs_[block.value];
  }
}

void BlockPool::Adopt(std::span<const BlockId> blocks) {
  Touch(blocks);
  for (const BlockId block : blocks) {
    if (block != kNullBlock) adopted_[block.value] = true;
  }
}

void BlockPool::Free(std::span<const BlockId> blocks, FreeTo place) {
  to_head_.clear();
  to_front_.clear();
  to_tail_.clear();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t ahead = i + kPrefetchDistance;
    if (ahead < blocks.size()) cached_.Prefetch(blocks[ahead]);
    const BlockId block = blocks[i];
    if (block == kNullBlock) continue;
    KV_CHECK(ref_count(block) > 0);
    if (--refs_[block.value] > 0) continue;
    const bool cached = cached_.HasKeys(block);
    if (place == FreeTo::kHead || (!cached && options_.reuse_uncached_first)) {
      to_head_.push_back(block);
    } else if (place == FreeTo::kEvictFirst && cached && !adopted_[block.value]) {
      to_front_.push_back(block);
    } else {
      to_tail_.push_back(block);
    }
  }
  free_.Prepend(to_head_);
  free_.InsertEarly(to_front_);
  free_.Append(to_tail_);
}

void BlockPool::CacheFullBlocks(const FullBlocks& blocks) {
  if (blocks.begin >= blocks.end) return;
  const int64_t units = blocks.block_size / options_.hash_block_size;
  const std::vector<Digest>& chain = blocks.request.chain;
  digests_.clear();
  begins_.clear();
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    if (const int64_t ahead = i + kPrefetchDistance; ahead < blocks.end) {
      cached_.Prefetch({BlockDigest(chain, ahead, units), blocks.group});
    }
    const BlockId block = blocks.table[static_cast<size_t>(i)];
    if (block == kNullBlock) continue;
    if (blocks.keep != nullptr && !blocks.keep->Test(i - blocks.begin)) continue;
    const int64_t covered = (i + 1) * blocks.block_size;
    if (cached_.HasKeys(block)) {
      KV_CHECK(cached_.PrimaryCoveredTokens(block) < covered);
      RemoveKeys(block);
    }
    const Digest& digest = BlockDigest(chain, i, units);
    const bool first = cached_.Insert({digest, blocks.group}, block, covered);
    if (!first && options_.events.announce_once) continue;
    digests_.push_back(&digest);
    begins_.push_back(i * blocks.block_size);
  }
  Announce(blocks.request, blocks.group, blocks.block_size, blocks.begin * blocks.block_size,
           blocks.end * blocks.block_size);
}

void BlockPool::Announce(const CacheRequest& request, GroupIdx group, int64_t block_size,
                         int64_t begin, int64_t end) {
  if (!events_.enabled()) return;
  if (!options_.events.exact_spans) {
    if (digests_.empty() && options_.events.announce_once) return;
    const auto parent = begin / options_.hash_block_size - 1;
    events_.AddStored({request, group, block_size, begin, end,
                       parent < 0 ? nullptr : &request.chain[static_cast<size_t>(parent)], begins_,
                       digests_});
    return;
  }
  for (size_t first = 0, i = 1; i <= begins_.size(); ++i) {
    if (i < begins_.size() && begins_[i] == begins_[i - 1] + block_size) continue;
    AnnounceRun(request, group, block_size, first, i - first);
    first = i;
  }
}

void BlockPool::AnnounceRun(const CacheRequest& request, GroupIdx group, int64_t block_size,
                            size_t first, size_t count) {
  const int64_t begin = begins_[first];
  const auto parent = begin / options_.hash_block_size - 1;
  events_.AddStored(
      {request, group, block_size, begin, begins_[first + count - 1] + block_size,
       parent < 0 ? nullptr : &request.chain[static_cast<size_t>(parent)],
       std::span(begins_).subspan(first, count), std::span(digests_).subspan(first, count)},
      begin);
}

std::optional<BlockKey> BlockPool::CachePartialBlock(const PartialBlock& partial) {
  const int64_t size = options_.hash_block_size;
  const int64_t end = partial.prefix_tokens;
  const auto hashed = static_cast<int64_t>(partial.request.chain.size()) * size;
  if (partial.block == kNullBlock || end <= 0 || end > hashed) return std::nullopt;
  if (end % size != 0) return std::nullopt;

  const std::vector<Digest>& chain = partial.request.chain;
  const auto last = static_cast<size_t>(end / size - 1);
  const BlockKey key{chain[last], partial.group};
  if (cached_.Contains(key, partial.block)) return key;
  if (cached_.HasKeys(partial.block) && cached_.PrimaryCoveredTokens(partial.block) < end) {
    RemoveKeys(partial.block);
  }
  const bool first = cached_.Insert(key, partial.block, end);
  if (!first && options_.events.announce_once) return key;
  digests_.assign(1, &chain[last]);
  begins_.assign(1, end - size);
  Announce(partial.request, partial.group, size, end - size, end);
  return key;
}

void BlockPool::CacheAs(const BlockKey& key, BlockId block, int64_t covered_tokens) {
  KV_CHECK(ref_count(block) > 0 && !cached_.HasKeys(block));
  cached_.Insert(key, block, covered_tokens);
}

void BlockPool::ReportBlocks(const CacheRequest& request, GroupIdx group, int64_t block_size,
                             std::span<const BlockId> hit) {
  if (hit.empty() || options_.events.announce_once) return;
  const int64_t units = block_size / options_.hash_block_size;
  const int64_t count = std::ssize(hit);
  digests_.clear();
  begins_.clear();
  for (int64_t i = 0; i < count; ++i) {
    const bool held = hit[static_cast<size_t>(i)] != kNullBlock;
    if (!held && options_.events.exact_spans) continue;
    digests_.push_back(&BlockDigest(request.chain, i, units));
    begins_.push_back(i * block_size);
  }
  Announce(request, group, block_size, 0, count * block_size);
}

void BlockPool::Evict(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    KV_CHECK(block.value < refs_.size());
    RemoveKeys(block);
  }
}

bool BlockPool::Reset() {
  if (num_free() != num_blocks() - 1) return false;
  ForgetAll();
  return true;
}

void BlockPool::ForgetAll() {
  cached_.Clear();
  events_.AddCleared();
}

Status BlockPool::CheckInvariants() const {
  const auto broken = [](const std::string& problem) {
    return Status(StatusCode::kInternal, problem);
  };
  if (free_.Contains(kNullBlock)) return broken("the null block is in the free queue");
  if (cached_.HasKeys(kNullBlock)) return broken("the null block is cached");
  int64_t queued = 0;
  for (uint32_t i = 1; i < refs_.size(); ++i) {
    const bool in_queue = free_.Contains(BlockId(i));
    queued += in_queue ? 1 : 0;
    if (in_queue != (refs_[i] == 0)) {
      return broken("block " + std::to_string(i) +
                    ": the free queue and the reference count disagree");
    }
  }
  if (queued != num_free() || static_cast<int64_t>(FreeList().size()) != queued) {
    return broken("the size counter of the free queue differs from its number of blocks");
  }
  if (!cached_.IsConsistent()) return broken("the cached-block map is inconsistent");
  if (!options_.enable_caching && cached_.num_entries() != 0) {
    return broken("blocks are cached although caching is off");
  }
  return {};
}

}  // namespace kvcast::engine
