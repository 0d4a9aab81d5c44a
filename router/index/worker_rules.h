// WorkerRules: what a query needs to know of a worker besides what it holds. Never changed: a
// worker whose groups turn out to be others gets new ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "router/index/group_catalogue.h"

namespace kvcast::router {

struct alignas(64) WorkerRules {
  // Properties other than groups that the stream has shown.
  struct Shown {
    int64_t lookahead = 0;     // tokens behind a block that its hash covers
    int64_t shortest_hit = 0;  // see ReuseEvidence; 0: none
    std::optional<EngineRules> rules;
  };
  WorkerRules(WorkerId worker, const WorkerConfig& config, const GroupCatalogue& catalogue,
              const Shown& shown);

  WorkerId id;
  uint32_t untold = 0;  // Untold bits
  // The reusable prefix, and each group's, is the run of leading blocks that all groups hold, in
  // steps of `alignment`: one block per hash, groups of one full kind, no draft head.
  bool leading_run = false;
  // The answer is 0 where the worker holds nothing of the prompt. Only chunked attention can serve
  // a prompt of which it holds no block.
  bool nothing_without_blocks = true;
  OffloadRule offload_rule = OffloadRule::kConnector;
  EngineRules rules = EngineRules::kMain2026August;
  int64_t unit = 0;               // tokens per hash; 0: not known yet
  int64_t alignment = 0;          // of hits
  std::vector<GroupSpec> groups;  // by group_idx
  // Most queries read the members above alone: one cache line.
  int64_t blocks_per_chunk = 1;  // offloaded as one
  int64_t block_alignment = 0;   // of hits that end with blocks
  int64_t replay_tokens = 0;     // of a hit, computed again
  int64_t lookahead = 0;
  int64_t shortest_hit = 0;      // tokens; hits from there on are not taken for none. 0: not known
  uint32_t untold_with_cpu = 0;  // Untold bits, of loads behind the hit
  bool has_chunks = false;       // a group of chunked local attention
};

}  // namespace kvcast::router
