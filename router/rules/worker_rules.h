// WorkerRules: the properties of a worker that a query needs in addition to its blocks. Immutable
// (I10 of router/index/README.md). Workers with equal properties share one object; see rule_sets.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "router/rules/group_registry.h"

namespace kvcast::router {

struct alignas(64) WorkerRules {
  // The properties that the stream has shown. The groups are not part of them.
  struct Shown {
    int64_t lookahead = 0;     // number of tokens after a block that the hash of the block covers
    int64_t shortest_hit = 0;  // see ReuseEvidence; 0: none
    std::optional<EngineRules> rules;
  };
  WorkerRules(const WorkerConfig& config, const GroupRegistry& registry, const Shown& shown);
  bool operator==(const WorkerRules&) const = default;

  uint32_t untold = 0;  // Untold bits
  // True if the reusable prefix is the run of leading blocks that all groups hold, rounded down to
  // `alignment`. The prefix of each group is then the same run. The conditions: one block per hash,
  // groups of one full kind, no draft head, and no replay.
  bool leading_run = false;
  // True if a worker without any block of the prompt always matches 0 tokens. False only with a
  // chunked-local-attention group.
  bool nothing_without_blocks = true;
  OffloadRule offload_rule = OffloadRule::kConnector;
  EngineRules rules = EngineRules::kMain2026August;
  int64_t hash_block_size = 0;    // tokens per block hash; 0: not known yet
  int64_t alignment = 0;          // of hits, tokens
  std::vector<GroupSpec> groups;  // by group_idx
  // Most queries read only the members above. They lie in one cache line.
  int64_t blocks_per_chunk = 1;  // blocks that are offloaded together
  int64_t block_alignment = 0;   // of hits that end with blocks, tokens
  int64_t replay_tokens = 0;     // tokens of a hit that are computed again
  int64_t lookahead = 0;
  int64_t shortest_hit = 0;      // tokens; hits of this length and above are used. 0: unknown
  uint32_t untold_with_cpu = 0;  // Untold bits for loads behind the hit
  bool has_chunks = false;       // a group of chunked local attention
};

}  // namespace kvcast::router
