// SPDX-License-Identifier: Apache-2.0
#include "router/worker_rules.h"

#include <algorithm>

namespace kvcast::router {

WorkerRules::WorkerRules(WorkerId worker, const WorkerConfig& config,
                         const GroupCatalogue& catalogue)
    : id(worker),
      offload_rule(config.offload_rule),
      blocks_per_chunk(config.blocks_per_chunk),
      unit(catalogue.unit()),
      alignment(catalogue.alignment()),
      groups(catalogue.Specs()) {
  nothing_without_blocks = std::none_of(groups.begin(), groups.end(), [](const GroupSpec& spec) {
    return spec.kind == SpecKind::kChunkedLocalAttention;
  });
  leading_run =
      !groups.empty() && unit > 0 && alignment > 0 &&
      std::all_of(groups.begin(), groups.end(), [&](const GroupSpec& spec) {
        return spec == groups[0] && IsFullKind(spec.kind) && !spec.eagle && spec.block_size == unit;
      });
}

}  // namespace kvcast::router
