// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <utility>

#include "src/offload/connector/scheduler_impl.h"

namespace kvcast {

using offload::GroupState;

namespace {

// Number of blocks of a group that hold a prefix of `tokens` tokens. If the group reads no token of
// the prefix again, the last incomplete block does not count.
int64_t BlocksOf(const OffloadGroup& group, int64_t tokens, bool compatible) {
  const bool is_read = compatible || SkippedTokens(group.spec, tokens) < tokens;
  return is_read ? CeilDiv(tokens, group.tokens_per_block) : tokens / group.tokens_per_block;
}

// The sum, or INT64_MAX if the sum is larger. REQUIRES: duration_ms >= 0.
int64_t LaterTime(int64_t time_ms, int64_t duration_ms) {
  return time_ms > INT64_MAX - duration_ms ? INT64_MAX : time_ms + duration_ms;
}

}  // namespace

Status OffloadScheduler::Impl::PlanLoad(Request& request, int64_t tokens,
                                        std::span<const std::vector<BlockId>> tables,
                                        std::vector<OffloadKey>& load_keys,
                                        std::vector<int64_t>& load_ends, OffloadJob& job) const {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const OffloadGroup& group = layout.groups[g];
    const std::vector<BlockId>& table = tables[group.index.value];
    const int64_t end = BlocksOf(group, tokens, config.compatible);
    if (std::ssize(table) < end) {
      const std::string index = std::to_string(group.index.value);
      return {StatusCode::kInvalidArgument, "tables[" + index + "] is too short"};
    }
    // A window has blocks only for the last part of the prefix.
    int64_t first = request.local_tokens / group.tokens_per_block;
    while (first < end && table[static_cast<size_t>(first)].value == 0) ++first;
    job.group_sizes.push_back(end - first);
    job.block_indices.push_back(first);
    if (first >= end) continue;
    const bool ends_inside = request.tail_boundary == tokens;
    if (!config.compatible && group.spec.kind == SpecKind::kMamba && !ends_inside &&
        tokens % group.tokens_per_chunk != 0) {
      return {StatusCode::kInvalidArgument,
              "external_tokens: no state is stored at this prefix end"};
    }
    for (int64_t i = first; i < end; ++i) job.gpu_blocks.push_back(table[static_cast<size_t>(i)]);
    const int64_t chunks = CeilDiv(tokens, group.tokens_per_chunk);
    for (int64_t chunk = first / layout.blocks_per_chunk; chunk < chunks; ++chunk) {
      const bool tail = ends_inside && chunk + 1 == chunks;
      if (!tail && chunk >= request.NumChunks(group)) {
        return {StatusCode::kInvalidArgument, "external_tokens exceeds the chunks of the request"};
      }
      load_keys.push_back(tail ? request.TailKey(layout, g, *request.tail_boundary)
                               : request.ChunkKey(layout, g, chunk));
      load_ends.push_back(tail ? tokens : (chunk + 1) * group.tokens_per_chunk);
    }
  }
  return Status();
}

Status OffloadScheduler::Impl::Load(Request& request, int64_t external_tokens,
                                    std::span<const std::vector<BlockId>> tables) {
  if (external_tokens < 0 || std::ssize(tables) != layout.configured_groups) {
    return {StatusCode::kInvalidArgument,
            "external_tokens must not be negative; tables must have one table per group"};
  }
  if (external_tokens > request.num_tokens() - request.local_tokens) {
    return {StatusCode::kInvalidArgument, "external_tokens exceeds the tokens of the request"};
  }
  if (!request.jobs.empty()) {
    return {StatusCode::kFailedPrecondition, "the request has a job in progress"};
  }
  const int64_t tokens = request.local_tokens + external_tokens;
  OffloadJob job;
  std::vector<OffloadKey> load_keys;
  std::vector<int64_t> load_ends;
  if (Status status = PlanLoad(request, tokens, tables, load_keys, load_ends, job); !status.ok()) {
    return status;
  }
  if (Status status = calls.PrepareLoad(request.id, load_keys, load_ends, job.slots);
      !status.ok()) {
    return status;
  }

  for (const std::vector<BlockId>& table : tables) {
    for (const BlockId block : table) allocated.Note(block);
  }
  if (config.policy == OffloadPolicy::kChunkLevel) {
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      request.groups[g].next_stored_chunk = CeilDiv(tokens, layout.groups[g].tokens_per_chunk);
    }
  }
  if (config.gpu_prefix_caching) loading.Add(load_keys);
  request.loaded = true;
  job.request = request.id;
  const int64_t bytes = std::ssize(job.slots) * calls.manager().slot_bytes();
  loading_bytes += bytes;
  if (request.within_step) sync_bytes += bytes;
  const int64_t expected_ms = loading_bytes / config.load_bytes_per_ms;
  const int64_t deadline_ms =
      LaterTime(LaterTime(request.last_match_ms, config.late_load_ms), expected_ms);
  job.id = AddJob(request, {.request = request.id,
                            .within_step = request.within_step,
                            .bytes = bytes,
                            .deadline_ms = deadline_ms,
                            .keys = std::move(load_keys)});
  if (request.within_step) before_step.push_back(job.id);
  loads.push_back(std::move(job));
  return Status();
}

}  // namespace kvcast
