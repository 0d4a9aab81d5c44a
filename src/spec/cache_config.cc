// ValidateCacheConfig: one check per rule. Each error names its field.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "kvcast/spec/cache_spec.h"
#include "src/spec/field_checks.h"

namespace kvcast {
namespace {

using internal::CheckMultiple;
using internal::CheckRange;
using internal::FirstError;
using internal::Invalid;
using internal::kMaxTokens;

// This limit bounds the memory of a pool. A pool needs about 100 bytes per block.
constexpr int64_t kMaxBlocks = int64_t{1} << 26;

Status CheckKindFields(const GroupSpec& group, const std::string& name) {
  if (IsWindowKind(group.kind)) {
    return CheckRange(name + "sliding_window", group.sliding_window, 1, kMaxTokens);
  }
  if (group.kind == SpecKind::kChunkedLocalAttention) {
    if (group.eagle) return Invalid(name + "eagle is not possible with chunked local attention");
    const Status range = CheckRange(name + "chunk_size", group.chunk_size, 1, kMaxTokens);
    if (!range.ok()) return range;
    // If a chunk starts inside a block, no block hash names the chunk's boundary.
    return CheckMultiple(name + "chunk_size", group.chunk_size, "block_size", group.block_size);
  }
  if (group.kind == SpecKind::kSinkFullAttention) {
    return CheckMultiple(name + "sink_tokens", group.sink_tokens, "block_size", group.block_size);
  }
  return {};
}

Status CheckGroup(const GroupSpec& group, size_t index) {
  const std::string name = "groups[" + std::to_string(index) + "].";
  const Status common = FirstError({
      CheckRange(name + "block_size", group.block_size, 1, kMaxTokens),
      CheckRange(name + "speculative_blocks", group.speculative_blocks, 0, kMaxTokens),
      CheckRange(name + "prefill_checkpoint_blocks", group.prefill_checkpoint_blocks, 0, 1),
      CheckRange(name + "prefill_checkpoint_alignment", group.prefill_checkpoint_alignment, 0,
                 kMaxTokens),
      CheckRange(name + "extra_retained_tokens", group.extra_retained_tokens, 0, kMaxTokens),
      CheckRange(name + "sink_tokens", group.sink_tokens, 0, kMaxTokens),
      CheckRange(name + "reference_window", group.reference_window, 0, kMaxTokens),
  });
  return common.ok() ? CheckKindFields(group, name) : common;
}

// The tokens of full attention are divided among the ranks. A Mamba state is the same on all ranks.
// All other kinds cannot be split.
Status CheckContextParallel(const GroupSpec& group, size_t index, int64_t ranks) {
  if (ranks == 1 || group.kind == SpecKind::kMamba) return {};
  const std::string name = "groups[" + std::to_string(index) + "].";
  if (!IsFullKind(group.kind)) {
    return Invalid(name + "kind: decode_context_parallel does not work with " +
                   std::string(SpecKindName(group.kind)));
  }
  return CheckMultiple(name + "block_size", group.block_size, "decode_context_parallel", ranks);
}

Status CheckScalars(const CacheConfig& config) {
  if (config.groups.empty()) return Invalid("groups must not be empty");
  if (!(config.watermark >= 0 && config.watermark < 1)) {
    return Invalid("watermark must be at least 0 and below 1");
  }
  return FirstError({
      CheckRange("num_blocks", config.num_blocks, 1, kMaxBlocks),
      CheckRange("max_model_len", config.max_model_len, 1, kMaxTokens),
      CheckRange("max_in_flight_tokens", config.max_in_flight_tokens, 1, kMaxTokens),
      CheckRange("hash_block_size", config.hash_block_size, 0, kMaxTokens),
      CheckRange("scheduler_block_size", config.scheduler_block_size, 0, kMaxTokens),
      CheckRange("mtp_lookahead_tokens", config.mtp_lookahead_tokens, 0, kMaxTokens),
      CheckRange("replay_tokens", config.replay_tokens, 0, kMaxTokens),
      CheckRange("chain_form.lookahead", config.chain_form.lookahead, 0, kMaxHashLookahead),
      CheckRange("max_encoder_tokens", config.max_encoder_tokens, 0, kMaxTokens),
      CheckRange("decode_context_parallel", config.decode_context_parallel, 1, kMaxTokens),
  });
}

// Least common multiple of all block sizes; 0 if it exceeds kMaxTokens.
int64_t LeastCommonMultiple(const std::vector<GroupSpec>& groups) {
  int64_t lcm = 1;
  for (const GroupSpec& group : groups) {
    lcm = std::lcm(lcm, group.block_size);
    if (lcm > kMaxTokens) return 0;
  }
  return lcm;
}

// The greatest common divisor of the block sizes of the groups that take part in prefix caching. If
// no group takes part, all groups count.
int64_t GreatestCommonDivisor(const std::vector<GroupSpec>& groups) {
  const bool any = std::any_of(groups.begin(), groups.end(), TakesPart);
  int64_t gcd = 0;
  for (const GroupSpec& group : groups) {
    if (!any || TakesPart(group)) gcd = std::gcd(gcd, group.block_size);
  }
  return gcd;
}

bool HasUnalignedMamba(const std::vector<GroupSpec>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const GroupSpec& group) {
    return group.kind == SpecKind::kMamba && group.mamba_mode != MambaMode::kAlign;
  });
}

Status FillGranularity(CacheConfig& config) {
  const int64_t lcm = LeastCommonMultiple(config.groups);
  if (lcm == 0) return Invalid("groups: the block sizes have no common multiple up to 2^31");
  if (config.scheduler_block_size == 0) config.scheduler_block_size = lcm;
  if (config.hash_block_size == 0) {
    const bool coarse = !config.enable_caching || HasUnalignedMamba(config.groups);
    config.hash_block_size = coarse ? lcm : GreatestCommonDivisor(config.groups);
  }
  return CheckMultiple("scheduler_block_size", config.scheduler_block_size,
                       "the least common multiple of the block sizes", lcm);
}

Status CheckGranularity(const CacheConfig& config) {
  const Status scheduler = CheckMultiple("scheduler_block_size", config.scheduler_block_size,
                                         "hash_block_size", config.hash_block_size);
  if (!scheduler.ok() || !config.enable_caching) return scheduler;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const GroupSpec& group = config.groups[i];
    if (!TakesPart(group)) continue;
    const std::string name = "groups[" + std::to_string(i) + "].block_size";
    const Status status =
        CheckMultiple(name, group.block_size, "hash_block_size", config.hash_block_size);
    if (!status.ok()) return status;
    if (group.kind == SpecKind::kChunkedLocalAttention &&
        group.block_size != config.scheduler_block_size) {
      return Invalid(name + " must equal scheduler_block_size with chunked local attention");
    }
  }
  return {};
}

Status CheckSingleGroup(const CacheConfig& config) {
  if (config.groups.size() != 1 || !config.enable_caching) return {};
  if (config.hash_block_size == config.groups[0].block_size) return {};
  return Invalid("hash_block_size must equal the block size of the only group");
}

Status CheckEagle(const CacheConfig& config) {
  const auto eagle = std::find_if(config.groups.begin(), config.groups.end(),
                                  [](const GroupSpec& group) { return group.eagle; });
  if (eagle == config.groups.end() || !config.enable_caching) return {};
  if (config.chain_form.lookahead > 0) {
    return Invalid("groups[" + std::to_string(eagle - config.groups.begin()) +
                   "].eagle is not possible with chain_form.lookahead");
  }
  if (config.mtp_lookahead_tokens <= config.scheduler_block_size) return {};
  return Invalid("mtp_lookahead_tokens must not exceed scheduler_block_size");
}

Status CheckRetention(const CacheConfig& config) {
  if (!config.retention_interval) return {};
  const int64_t interval = *config.retention_interval;
  if (interval < 0) return Invalid("retention_interval must not be negative");
  const bool sparse =
      std::any_of(config.groups.begin(), config.groups.end(), [](const GroupSpec& group) {
        return IsWindowKind(group.kind) || group.kind == SpecKind::kMamba;
      });
  if (!sparse && interval != 0) {
    return Invalid("retention_interval has no effect without a sliding-window or Mamba group");
  }
  if (!sparse) return {};
  return CheckMultiple("retention_interval", interval, "scheduler_block_size",
                       config.scheduler_block_size);
}

// Groups with equal specs are cached and looked up together, so a draft head of one group counts
// for all of them.
void ShareEagleFlag(std::vector<GroupSpec>& groups) {
  for (const GroupSpec& eagle_group : std::vector<GroupSpec>(groups)) {
    if (!eagle_group.eagle) continue;
    for (GroupSpec& group : groups) {
      GroupSpec with_eagle = group;
      with_eagle.eagle = true;
      if (with_eagle == eagle_group) group.eagle = true;
    }
  }
}

}  // namespace

Result<CacheConfig> ValidateCacheConfig(CacheConfig config) {
  Status status = CheckScalars(config);
  for (size_t i = 0; status.ok() && i < config.groups.size(); ++i) {
    status = CheckGroup(config.groups[i], i);
    if (!status.ok()) break;
    status = CheckContextParallel(config.groups[i], i, config.decode_context_parallel);
  }
  if (status.ok()) status = FillGranularity(config);
  if (!status.ok()) return status;
  status = FirstError({CheckGranularity(config), CheckSingleGroup(config), CheckEagle(config),
                       CheckRetention(config)});
  if (!status.ok()) return status;
  ShareEagleFlag(config.groups);
  return config;
}

bool PartialHitsEnabled(const CacheConfig& config) {
  if (config.groups.size() < 2 || !config.enable_caching) return false;
  if (config.rules < EngineRules::kMain2026August) return false;
  const int64_t hash_block_size = config.hash_block_size;
  bool states_inside_blocks = false;
  for (const GroupSpec& group : config.groups) {
    if (!TakesPart(group)) continue;
    const bool is_mamba = group.kind == SpecKind::kMamba;
    if (!is_mamba && !IsFullKind(group.kind) && group.block_size != hash_block_size) return false;
    const bool aligned = is_mamba && group.mamba_mode == MambaMode::kAlign;
    const bool inside = group.block_size > hash_block_size || config.decode_context_parallel > 1;
    states_inside_blocks |= aligned && inside;
  }
  return states_inside_blocks;
}

int64_t HitAlignment(const CacheConfig& config) {
  if (config.groups.size() == 1) return config.groups[0].block_size;
  return PartialHitsEnabled(config) ? config.hash_block_size : config.scheduler_block_size;
}

}  // namespace kvcast
