// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/engine/annotate.h"
#include "src/offload/mirror/simple_impl.h"
#include "src/offload/mirror/stored_chains.h"

namespace kvcast {

using offload::StoreCandidate;
using offload::StoreProgress;

BlockStored SimpleOffload::Impl::Describe(const CacheRequest& request, GroupIdx group,
                                          int64_t first, int64_t count) {
  const int64_t size = config.cache.groups[group.value].block_size;
  std::vector<int64_t> begins;
  std::vector<const Digest*> digests;
  for (int64_t i = first; i < first + count; ++i) {
    begins.push_back(i * size);
    digests.push_back(&BlockDigest(request.chain, i, units(group)));
  }
  const Digest* parent =
      first == 0 ? nullptr : &BlockDigest(request.chain, first - 1, units(group));
  BlockStored event;
  cpu.events().Describe(
      {request, group, size, first * size, (first + count) * size, parent, begins, digests},
      first * size, event);
  KV_CHECK(engine::Annotate(config.cache.groups, event).ok());
  return event;
}

BlockStored SimpleOffload::Impl::DescribeUnknown(const BlockContent& content) {
  BlockStored event;
  event.block_hashes.push_back(ToEventHash(content.digest, config.events.hash_form));
  event.token_ids.emplace();
  event.medium = config.medium;
  event.group_idx = content.group.value;
  KV_CHECK(engine::Annotate(config.cache.groups, event).ok());
  return event;
}

void SimpleOffload::Impl::DescribeFreeBlocks() {
  if (!announces_stores()) return;
  // A free queue holds the blocks of a request one by one, the last block first. JoinChains makes
  // one event of each run of consecutive blocks.
  std::vector<BlockStored> blocks;
  for (const StoreCandidate& chosen : candidates) {
    const bool known = chosen.gpu.value < described.size() &&
                       described[chosen.gpu.value].content == chosen.content;
    blocks.push_back(known ? described[chosen.gpu.value].event : DescribeUnknown(chosen.content));
  }
  for (BlockStored& event : offload::JoinChains(std::move(blocks))) {
    next_store.events.push_back(std::move(event));
  }
}

void SimpleOffload::Impl::DescribeCandidates(const CacheRequest& request) {
  if (!announces_stores()) return;
  std::vector<StoreCandidate> ordered = candidates;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const StoreCandidate& a, const StoreCandidate& b) {
                     return a.content.group < b.content.group;
                   });
  for (size_t first = 0, i = 1; i <= ordered.size(); ++i) {
    const bool neighbour = i < ordered.size() &&
                           ordered[i].content.group == ordered[i - 1].content.group &&
                           ordered[i].index == ordered[i - 1].index + 1;
    if (neighbour) continue;
    next_store.events.push_back(Describe(request, ordered[first].content.group,
                                         ordered[first].index, static_cast<int64_t>(i - first)));
    first = i;
  }
}

void SimpleOffload::Impl::DescribeBlock(const CacheRequest& request, GroupIdx group, int64_t index,
                                        BlockId block) {
  const int64_t size = config.cache.groups[group.value].block_size;
  const BlockContent own{BlockDigest(request.chain, index, units(group)), group,
                         (index + 1) * size};
  if (block.value >= described.size()) described.resize(block.value + size_t{1});
  Described& entry = described[block.value];
  if (entry.content != own) entry = {own, Describe(request, group, index, 1)};
}

void SimpleOffload::Impl::DescribeTables(const CacheRequest& request, int64_t confirmed_tokens) {
  if (config.mode != StoreMode::kLazy || !announces_stores()) return;
  StoreProgress& request_progress = ProgressOf(request);
  for (size_t i = 0; i < config.cache.groups.size(); ++i) {
    const GroupIdx group(static_cast<uint32_t>(i));
    const GroupSpec& spec = config.cache.groups[i];
    if (!TakesPart(spec)) continue;
    const auto table = gpu.BlockTable(request, group);
    const int64_t end = std::min(static_cast<int64_t>(table.size()),
                                 static_cast<int64_t>(request.chain.size()) / units(group));
    // A window may release a block before the block is confirmed.
    for (int64_t index = request_progress.cursors[i]; index < end; ++index) {
      const BlockId block = table[static_cast<size_t>(index)];
      if (block != engine::kNullBlock) DescribeBlock(request, group, index, block);
    }
    request_progress.cursors[i] =
        std::max(request_progress.cursors[i], std::min(end, confirmed_tokens / spec.block_size));
  }
}

}  // namespace kvcast
