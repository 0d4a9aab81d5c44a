// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model/model_config.h"

#include <algorithm>

namespace kvcast::naive {
namespace {

GroupSpec RandomFull(Random& random, GroupSpec group) {
  const SpecKind kinds[] = {SpecKind::kFullAttention, SpecKind::kFullAttention,
                            SpecKind::kMlaAttention, SpecKind::kSinkFullAttention};
  group.kind = kinds[Pick(random, 0, 3)];
  if (group.kind == SpecKind::kSinkFullAttention) {
    group.sink_tokens = group.block_size * Pick(random, 0, 2);
  }
  if (OneIn(random, 6)) group.reference_window = Pick(random, 1, 8 * group.block_size);
  return group;
}

GroupSpec RandomWindow(Random& random, GroupSpec group, int64_t hash_block_size) {
  group.kind = OneIn(random, 3) ? SpecKind::kSlidingWindowMla : SpecKind::kSlidingWindow;
  group.sliding_window = Pick(random, 1, 12 * hash_block_size);
  if (OneIn(random, 4)) group.extra_retained_tokens = Pick(random, 1, 3);
  return group;
}

GroupSpec RandomMamba(Random& random, GroupSpec group) {
  const MambaMode modes[] = {MambaMode::kAlign, MambaMode::kAlign, MambaMode::kAlign,
                             MambaMode::kAll, MambaMode::kNone};
  group.kind = SpecKind::kMamba;
  group.mamba_mode = modes[Pick(random, 0, 4)];
  if (OneIn(random, 2)) group.speculative_blocks = Pick(random, 1, 2);
  return group;
}

// Lets a step of a prompt keep a second state, as vLLM does from v0.29 on. With multi-module MTP,
// blocks are cached later than they are computed. A block that holds such a state could then get
// the key of the full block, so these configurations get no second state.
void AddCheckpoints(Random& random, CacheConfig& config) {
  if (config.rules < EngineRules::kV032 || config.mtp_lookahead_tokens > 1) return;
  for (GroupSpec& group : config.groups) {
    if (group.kind != SpecKind::kMamba || group.mamba_mode != MambaMode::kAlign) continue;
    if (OneIn(random, 2)) continue;
    group.prefill_checkpoint_blocks = 1;
    group.prefill_checkpoint_alignment = int64_t{1} << Pick(random, 0, 3);
  }
}

GroupSpec RandomGroup(Random& random, int64_t hash_block_size, bool one_size) {
  GroupSpec group;
  group.block_size = one_size ? hash_block_size : hash_block_size << Pick(random, 0, 2);
  const int64_t kind = Pick(random, 0, 15);
  if (kind < 6) {
    group = RandomFull(random, group);
  } else if (kind < 10) {
    group = RandomWindow(random, group, hash_block_size);
  } else if (kind < 13) {
    group = RandomMamba(random, group);
  } else if (kind < 15) {
    group.kind = SpecKind::kChunkedLocalAttention;
    group.chunk_size = group.block_size * Pick(random, 1, 5);
  } else {
    group.kind = OneIn(random, 3) ? SpecKind::kEncoderOnlyAttention : SpecKind::kCrossAttention;
  }
  group.eagle = group.kind != SpecKind::kChunkedLocalAttention && OneIn(random, 4);
  return group;
}

// Returns groups for which PartialHitsEnabled can be true: one or two full groups, a Mamba group
// whose blocks are larger than hash_block_size, and sometimes a sliding-window group.
std::vector<GroupSpec> GroupsWithTails(Random& random, int64_t hash_block_size) {
  std::vector<GroupSpec> groups;
  for (int64_t i = Pick(random, 1, 2); i > 0; --i) {
    GroupSpec group;
    group.block_size = hash_block_size << Pick(random, 0, 2);
    groups.push_back(RandomFull(random, group));
    groups.back().eagle = OneIn(random, 4);
  }
  GroupSpec group;
  group.block_size = hash_block_size << Pick(random, 1, 2);
  groups.push_back(RandomMamba(random, group));
  groups.back().mamba_mode = MambaMode::kAlign;
  if (OneIn(random, 3)) {
    group.block_size = hash_block_size;
    groups.push_back(RandomWindow(random, group, hash_block_size));
  }
  return groups;
}

EngineRules RandomRules(Random& random) {
  if (OneIn(random, 2)) return OneIn(random, 3) ? EngineRules::kV032 : EngineRules::kV033;
  if (OneIn(random, 6)) return EngineRules::kV021;
  return OneIn(random, 5) ? EngineRules::kMain2026May : EngineRules::kMain2026August;
}

}  // namespace

int64_t Pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

bool OneIn(Random& random, int64_t n) { return Pick(random, 1, n) == 1; }

CacheConfig RandomConfig(Random& random) {
  CacheConfig config;
  const int64_t hash_block_size = int64_t{1} << Pick(random, 1, 3);
  if (OneIn(random, 4)) {
    config.groups = GroupsWithTails(random, hash_block_size);
  } else {
    const bool one_size = OneIn(random, 3);
    for (int64_t i = Pick(random, 1, 4); i > 0; --i) {
      config.groups.push_back(RandomGroup(random, hash_block_size, one_size));
    }
  }
  if (OneIn(random, 4)) config.groups.push_back(config.groups[0]);
  if (config.groups.size() > 1 && !OneIn(random, 3)) config.hash_block_size = hash_block_size;
  int64_t largest = 0;
  for (const GroupSpec& group : config.groups) largest = std::max(largest, group.block_size);
  if (OneIn(random, 6)) config.scheduler_block_size = 2 * largest;
  if (OneIn(random, 2)) config.retention_interval = largest * Pick(random, 0, 3);
  config.num_blocks = Pick(random, 12, 160);
  config.max_model_len = hash_block_size * Pick(random, 20, 60);
  config.max_in_flight_tokens = Pick(random, 1, 64);
  if (OneIn(random, 4)) config.mtp_lookahead_tokens = Pick(random, 1, 4);
  config.rules = RandomRules(random);
  AddCheckpoints(random, config);
  config.enable_caching = !OneIn(random, 20);
  if (OneIn(random, 4)) config.watermark = 0.05;
  if (OneIn(random, 8)) config.decode_context_parallel = 2;
  config.zero_new_blocks = OneIn(random, 3);
  return config;
}

std::string Describe(const CacheConfig& config) {
  std::string text;
  for (const GroupSpec& group : config.groups) {
    text += std::string(SpecKindName(group.kind)) + " block_size " +
            std::to_string(group.block_size) + " window " + std::to_string(group.sliding_window) +
            " chunk " + std::to_string(group.chunk_size) + " mode " +
            std::to_string(static_cast<int>(group.mamba_mode)) + " speculative_blocks " +
            std::to_string(group.speculative_blocks) + " checkpoints " +
            std::to_string(group.prefill_checkpoint_blocks) + " alignment " +
            std::to_string(group.prefill_checkpoint_alignment) + " retained " +
            std::to_string(group.extra_retained_tokens) + " sink " +
            std::to_string(group.sink_tokens) + " reference " +
            std::to_string(group.reference_window) + (group.eagle ? " eagle; " : "; ");
  }
  return text + "blocks " + std::to_string(config.num_blocks) + " length " +
         std::to_string(config.max_model_len) + " hash_block_size " +
         std::to_string(config.hash_block_size) + " scheduler_block_size " +
         std::to_string(config.scheduler_block_size) + " retention " +
         (config.retention_interval ? std::to_string(*config.retention_interval) : "none") +
         " decode_context_parallel " + std::to_string(config.decode_context_parallel) + " mtp " +
         std::to_string(config.mtp_lookahead_tokens) + " rules " +
         std::to_string(static_cast<int>(config.rules)) +
         (config.enable_caching ? "" : " no cache");
}

}  // namespace kvcast::naive
