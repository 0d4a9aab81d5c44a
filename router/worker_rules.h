// WorkerRules: what a query needs to know of a worker besides what it holds. Never changed: a
// worker whose groups turn out to be others gets new ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/prefix_index.h"
#include "router/group_catalogue.h"

namespace kvcast::router {

struct WorkerRules {
  WorkerRules(WorkerId worker, const WorkerConfig& config, const GroupCatalogue& catalogue);

  WorkerId id;
  OffloadRule offload_rule = OffloadRule::kConnector;
  int64_t blocks_per_chunk = 1;   // offloaded as one
  int64_t unit = 0;               // tokens per hash; 0: not known yet
  int64_t alignment = 0;          // of hits
  std::vector<GroupSpec> groups;  // by group_idx
  // Nobody's answer is more than 0 who holds nothing of the prompt. Only chunked attention can say
  // of a group that it could serve what it does not hold.
  bool nothing_without_blocks = true;
  // The reusable prefix, and each group's, is the run of leading blocks that all groups hold, in
  // steps of `alignment`: one block per hash, groups of one full kind, no draft head.
  bool leading_run = false;
};

}  // namespace kvcast::router
