// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "src/offload/mirror/simple_impl.h"

namespace kvcast {

using offload::StoreCandidate;
using offload::StoreProgress;

StoreProgress& SimpleOffload::Impl::ProgressOf(const CacheRequest& request) {
  StoreProgress& entry = progress[request.id];
  if (entry.finished) entry.cursors.clear();  // a new request has the same id
  entry.cursors.resize(config.cache.groups.size());
  entry.finished = false;
  return entry;
}

bool SimpleOffload::Impl::IsMissing(BlockId block, const BlockContent& content) {
  if (const auto host = cpu.FindCached(content.digest, content.group)) {
    present.push_back(*host);
    return false;
  }
  if (config.compatible) return !storing_gpu_blocks.contains(block);
  return !storing_keys.contains(offload::KeyOf(content));
}

void SimpleOffload::Impl::CollectGroup(const CacheRequest& request, GroupIdx group, int64_t tokens,
                                       bool from_start, int64_t& cursor) {
  const int64_t size = config.cache.groups[group.value].block_size;
  const auto table = gpu.BlockTable(request, group);
  const int64_t end = std::min(tokens / size, static_cast<int64_t>(table.size()));
  int64_t index = from_start ? 0 : cursor;
  for (; index < end; ++index) {
    const BlockId block = table[static_cast<size_t>(index)];
    if (block == engine::kNullBlock) continue;
    const auto content = gpu.ContentOf(block);
    if (!content) continue;
    if (!config.compatible) {
      const auto last = static_cast<size_t>((index + 1) * units(group) - 1);
      if (last >= request.chain.size()) break;
      const BlockContent own{request.chain[last], group, (index + 1) * size};
      if (*content != own) continue;
    }
    if (!IsMissing(block, *content)) continue;
    if (config.compatible && std::ssize(candidates) >= cpu.num_free()) break;
    candidates.push_back({block, *content, index});
  }
  cursor = std::max(cursor, index);
}

void SimpleOffload::Impl::ProtectPresent() {
  const auto end_of = [this](BlockId host) { return cpu.cached().PrimaryCoveredTokens(host); };
  std::stable_sort(present.begin(), present.end(),
                   [&end_of](BlockId a, BlockId b) { return end_of(a) < end_of(b); });
  size_t kept = 0;
  size_t stored = 0;
  for (int64_t room = cpu.num_free(); kept < present.size(); ++kept) {
    for (; stored < candidates.size() &&
           candidates[stored].content.prefix_tokens < end_of(present[kept]);
         ++stored) {
      --room;
    }
    if (cpu.ref_count(present[kept]) == 0) --room;
    if (room < 0) break;
  }
  present.resize(kept);
  cpu.Touch(present);
}

void SimpleOffload::Impl::KeepFittingCandidates(StoreProgress& request_progress) {
  const auto room = static_cast<size_t>(cpu.num_free());
  for (size_t i = candidates.size(); i > room; --i) {
    const StoreCandidate& left_out = candidates[i - 1];
    int64_t& cursor = request_progress.cursors[left_out.content.group.value];
    cursor = std::min(cursor, left_out.index);
  }
  candidates.resize(std::min(candidates.size(), room));
}

void SimpleOffload::Impl::StoreRequest(const CacheRequest& request, int64_t confirmed_tokens,
                                       bool from_start) {
  StoreProgress& request_progress = progress.at(request.id);
  const int64_t step = config.cache.scheduler_block_size;
  const int64_t tokens = confirmed_tokens / step * step;
  candidates.clear();
  present.clear();
  for (size_t i = 0; i < config.cache.groups.size(); ++i) {
    if (!TakesPart(config.cache.groups[i])) continue;
    if (config.compatible && std::ssize(candidates) >= cpu.num_free()) break;
    CollectGroup(request, GroupIdx(static_cast<uint32_t>(i)), tokens, from_start,
                 request_progress.cursors[i]);
  }
  if (!from_start) present.clear();
  if (!config.compatible) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const StoreCandidate& a, const StoreCandidate& b) {
                       return a.content.prefix_tokens < b.content.prefix_tokens;
                     });
    ProtectPresent();
    KeepFittingCandidates(request_progress);
  }
  if (!candidates.empty()) {
    DescribeCandidates(request);
    ReserveCandidates();
    if (next_store.requests.empty() || next_store.requests.back() != request.id) {
      next_store.requests.push_back(request.id);
      ++request_progress.stores;
    }
  }
  FreeHost(present);
}

void SimpleOffload::Impl::StoreFreeBlocks() {
  candidates.clear();
  present.clear();
  if (!config.compatible || (lazy_cursor && !gpu.IsFree(*lazy_cursor))) lazy_cursor.reset();
  int64_t room = cpu.num_free();
  for (int64_t seen = 0; seen < config.lazy_target_free && room > 0; ++seen) {
    const auto block = gpu.NextFree(lazy_cursor);
    if (!block) break;
    lazy_cursor = block;
    const auto content = gpu.ContentOf(*block);
    if (!content) continue;
    const int64_t size = config.cache.groups[content->group.value].block_size;
    if (content->prefix_tokens % size != 0 || HasFailed(*block, *content)) continue;
    const size_t present_before = present.size();
    if (IsMissing(*block, *content)) {
      candidates.push_back({*block, *content, 0});
      --room;
      if (!config.compatible) storing_keys.insert(offload::KeyOf(*content));
    } else if (!config.compatible && present.size() > present_before) {
      room -= cpu.ref_count(present.back()) == 0;
    }
  }
  if (config.compatible || candidates.empty()) present.clear();
  // Without this Touch, a tier that is smaller than the target would evict the blocks that it has
  // just stored.
  cpu.Touch(present);
  DescribeFreeBlocks();
  ReserveCandidates();
  FreeHost(present);
}

bool SimpleOffload::Impl::HasFailed(BlockId block, const BlockContent& content) const {
  const auto found = failed_stores.find(block);
  return found != failed_stores.end() && found->second == content;
}

}  // namespace kvcast
