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
  // The properties that the stream has shown, without the groups.
  struct Shown {
    // Number of tokens after a block that the hash of the block covers. nullopt: not shown.
    std::optional<int64_t> lookahead;
    int64_t shortest_hit = 0;  // ReuseEvidence::shortest_hit, tokens; 0: no hit was shown
    int64_t hit_step = 0;      // ReuseEvidence::hit_step, tokens; 0: no hit was shown
    std::optional<EngineRules> rules;
    // Bit t: since tier t was last cleared, an event of the tier was not applied, because it
    // contradicts the groups.
    uint8_t refused_tiers = 0;
  };
  WorkerRules(const WorkerConfig& config, const GroupRegistry& registry, const Shown& shown);
  bool operator==(const WorkerRules&) const = default;

  // Mask of UnknownProperty: unknown properties that can change hits on the GPU.
  uint32_t unknown = 0;
  // True if the reusable prefix is the run of leading blocks that all groups hold, rounded down to
  // `alignment`. The prefix of each group is then the same run. The conditions: hash_block_size and
  // `alignment` are known, and replay_tokens is 0. All groups are equal. Their kind is a full kind,
  // a block has one hash, and there is no draft head.
  bool leading_run = false;
  // True: a worker without any block of the prompt matches 0 tokens. Registered groups: set if no
  // group has chunked local attention. Learned groups: set if a known group has another kind. Not
  // set with UnknownProperty::kConflict.
  bool nothing_without_blocks = true;
  OffloadRule offload_rule = OffloadRule::kConnector;
  EngineRules rules = EngineRules::kMain2026August;
  int64_t hash_block_size = 0;    // tokens per block hash; 0: not known yet
  int64_t alignment = 0;          // hits are multiples of this number of tokens; 0: not known yet
  std::vector<GroupSpec> groups;  // by group_idx
  // The members above lie in one cache line, because most queries read only these members.
  int64_t blocks_per_chunk = 1;  // blocks of a group that the offloading connector moves together
  int64_t block_alignment = 0;   // least common multiple of the block sizes; 0: not known yet
  int64_t replay_tokens = 0;     // tokens of a hit that are computed again
  int64_t lookahead = 0;         // as Shown::lookahead; not shown: as registered
  int64_t shortest_hit = 0;      // see Shown; the engine uses every hit of at least this length
  int64_t hit_step = 0;          // see Shown; 0 if UnknownProperty::kGroups is not set
  // Mask of UnknownProperty: unknown properties that can change the prefix after loads from lower
  // tiers.
  uint32_t unknown_with_cpu = 0;
  bool has_chunks = false;  // a group has chunked local attention
  // True: the engine drops a block for a draft head, but it is not known in which groups. `groups`
  // assumes all groups, so a hit can be longer than the answer.
  bool drops_in_some_group = false;
};

// The groups as a query evaluates them: the known groups with the registered properties that no
// event shows. `lookahead`: as WorkerRules::lookahead.
std::vector<GroupSpec> EvaluatedGroups(const WorkerConfig& config, const GroupRegistry& registry,
                                       int64_t lookahead);

}  // namespace kvcast::router
