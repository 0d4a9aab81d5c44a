// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/offload/scheduler_impl.h"

namespace kvcast {

using offload::GroupState;
using offload::TableEntry;

StoreLimits OffloadScheduler::Impl::LimitsOf(const Request& request) const {
  return {.num_tokens = request.num_tokens(),
          .prompt_tokens = request.request->prompt_tokens,
          .prompt_only = config.prompt_only,
          .max_offload_tokens = request.options.max_offload_tokens};
}

int64_t OffloadScheduler::Impl::Storable(const Request& request, size_t group,
                                         int64_t offloadable) const {
  const OffloadGroup& rules = layout.groups[group];
  const int64_t storable =
      StorableChunks(rules, layout.blocks_per_chunk, offloadable, request.request->prompt_tokens,
                     std::ssize(request.groups[group].table), request.finished && is_v032());
  return std::min(storable, request.NumChunks(rules));
}

bool OffloadScheduler::Impl::IsComplete(const Request& request, size_t group, int64_t chunk) const {
  const OffloadGroup& rules = layout.groups[group];
  const std::vector<TableEntry>& table = request.groups[group].table;
  const int64_t end = (chunk + 1) * layout.blocks_per_chunk;
  // A state says all by itself; of a window every block counts.
  const bool last_only = (config.compatible && !is_v032()) || rules.requires_cow_source;
  for (int64_t i = last_only ? end - 1 : end - layout.blocks_per_chunk; i < end; ++i) {
    const TableEntry& entry = table[static_cast<size_t>(i)];
    if (entry.block.value == 0) return false;
    const bool may_be_lost = !config.compatible && rules.window_chunks.has_value();
    if (may_be_lost && allocated_in.at(entry.block) != entry.step) return false;
  }
  return true;
}

void OffloadScheduler::Impl::ChooseChunks(const Request& request, int64_t offloadable) {
  candidates.clear();
  keys.clear();
  ends.clear();
  const StoreScope scope{request.request->prompt_tokens, request.request->shared_prefix_boundary};
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const int64_t storable = Storable(request, g, offloadable);
    const int64_t first = request.groups[g].next_stored_chunk;
    FillStoreMask(layout, g, first, storable, scope, mask);
    for (int64_t chunk = first; chunk < storable; ++chunk) {
      if (!mask[static_cast<size_t>(chunk - first)] || !IsComplete(request, g, chunk)) continue;
      candidates.push_back({request.ChunkKey(layout, g, chunk), g, chunk});
      keys.push_back(candidates.back().key);
      ends.push_back((chunk + 1) * layout.groups[g].tokens_per_chunk);
    }
  }
}

void OffloadScheduler::Impl::Store(Request& request, int64_t tokens_after) {
  const int64_t offloadable = OffloadableTokens(LimitsOf(request), tokens_after);
  ChooseChunks(request, offloadable);
  if (!keys.empty()) {
    const bool room = calls.PrepareStore(request.id, keys, ends, store_plan);
    TranslateEventsNow();
    if (!room) {
      ++stats.allocation_failures;
      return;
    }
  }
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    int64_t& next = request.groups[g].next_stored_chunk;
    next = std::max(next, Storable(request, g, offloadable));
  }
  if (keys.empty() || store_plan.keys.empty()) return;
  Touch(request);
  MakeStoreJob(request);
}

void OffloadScheduler::Impl::AddChunkToJob(const Request& request, size_t group, int64_t chunk,
                                           OffloadJob& job) const {
  const std::vector<TableEntry>& table = request.groups[group].table;
  const int64_t begin = chunk * layout.blocks_per_chunk;
  const int64_t end = begin + layout.blocks_per_chunk;
  // Of states only the one at the end is ever loaded.
  const bool last_only = !config.compatible && layout.groups[group].requires_cow_source;
  for (int64_t i = begin; i < end; ++i) {
    const bool copied = !last_only || i + 1 == end;
    const BlockId block = copied ? table[static_cast<size_t>(i)].block : BlockId(0);
    // A gap keeps what follows at its place in the chunk.
    if (block.value == 0 && (config.compatible || job.group_sizes[group] == 0)) continue;
    if (job.group_sizes[group]++ == 0) job.block_indices[group] = i;
    job.gpu_blocks.push_back(block);
  }
}

void OffloadScheduler::Impl::MakeStoreJob(Request& request) {
  OffloadJob job;
  job.request = request.id;
  job.store = true;
  job.group_sizes.assign(layout.groups.size(), 0);
  job.block_indices.assign(layout.groups.size(), 0);
  job.slots = store_plan.slots;
  Job record{.request = request.id, .store = true, .keys = store_plan.keys};
  size_t accepted = 0;  // the plan keeps the order of the candidates
  for (const Candidate& candidate : candidates) {
    if (accepted == store_plan.keys.size()) break;
    if (store_plan.keys[accepted] != candidate.key) continue;
    ++accepted;
    const size_t before = job.gpu_blocks.size();
    AddChunkToJob(request, candidate.group, candidate.chunk, job);
    if (layout.groups[candidate.group].window_chunks) {
      record.fenced_from_start.insert(record.fenced_from_start.end(),
                                      job.gpu_blocks.begin() + static_cast<ptrdiff_t>(before),
                                      job.gpu_blocks.end());
    }
    if (describer.Describes(candidate.group)) {
      writer.Describe(candidate.key, describer.Chunk(request, candidate.group, candidate.chunk));
    }
  }
  record.blocks = job.gpu_blocks;
  std::erase(record.blocks, BlockId(0));
  std::erase(record.fenced_from_start, BlockId(0));
  job.id = AddJob(request, std::move(record));
  plan.stores.push_back(std::move(job));
}

void OffloadScheduler::Impl::StoreTails(const OffloadStep& step) {
  for (size_t i = 0; i < step.tails.size();) {
    size_t end = i + 1;
    while (end < step.tails.size() && step.tails[end].request == step.tails[i].request) ++end;
    Request* request = Find(step.tails[i].request);
    if (request != nullptr) StoreTail(*request, step.tails.subspan(i, end - i));
    i = end;
  }
}

BlockId OffloadScheduler::Impl::TailSource(const Request& request, size_t group,
                                           std::span<const OffloadStep::Tail> tails) const {
  for (const OffloadStep::Tail& tail : tails) {
    if (tail.group == layout.groups[group].index) return tail.block;
  }
  const OffloadGroup& rules = layout.groups[group];
  const std::vector<TableEntry>& table = request.groups[group].table;
  const int64_t index = (tails[0].boundary - 1) / rules.tokens_per_block;
  // A state in the table goes on to be changed.
  if (rules.requires_cow_source || index >= std::ssize(table)) return BlockId(0);
  return table[static_cast<size_t>(index)].block;
}

void OffloadScheduler::Impl::StoreTail(Request& request, std::span<const OffloadStep::Tail> tails) {
  const int64_t boundary = tails[0].boundary;
  const int64_t unit = layout.tokens_per_hash;
  if (!layout.supports_partial_tail || boundary <= 0 || boundary % unit != 0 ||
      boundary / unit > std::ssize(request.request->chain) ||
      boundary > OffloadableTokens(LimitsOf(request), boundary)) {
    return;
  }
  keys.clear();
  std::vector<BlockId> sources;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    sources.push_back(TailSource(request, g, tails));
    if (sources.back().value == 0) return;  // no group could use the others' part alone
    keys.push_back(request.BoundaryKey(layout, g, boundary));
  }
  ends.assign(keys.size(), boundary);
  const bool room = calls.PrepareStore(request.id, keys, ends, store_plan);
  TranslateEventsNow();
  stats.allocation_failures += !room;
  if (room && !store_plan.keys.empty()) MakeTailJob(request, boundary, sources);
}

void OffloadScheduler::Impl::MakeTailJob(Request& request, int64_t boundary,
                                         std::span<const BlockId> sources) {
  OffloadJob job;
  job.request = request.id;
  job.store = true;
  job.slots = store_plan.slots;
  size_t accepted = 0;  // the plan keeps the order of the keys
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const bool stored = accepted < store_plan.keys.size() && store_plan.keys[accepted] == keys[g];
    job.group_sizes.push_back(stored ? 1 : 0);
    job.block_indices.push_back(stored ? (boundary - 1) / layout.groups[g].tokens_per_block : 0);
    if (!stored) continue;
    ++accepted;
    job.gpu_blocks.push_back(sources[g]);
    if (describer.Describes(g)) writer.Describe(keys[g], describer.Tail(request, g, boundary));
  }
  job.id = AddJob(request, {.request = request.id,
                            .store = true,
                            .keys = store_plan.keys,
                            .blocks = job.gpu_blocks,
                            .fenced_from_start = job.gpu_blocks});
  plan.stores.push_back(std::move(job));
}

}  // namespace kvcast
