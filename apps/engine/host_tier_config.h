// The configuration of the host memory behind a simulated engine, and the requests of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::tools {

// The scheduler of the copies.
enum class OffloadKind : uint8_t {
  kMirrorEager,  // SimpleOffload: stores the blocks that running requests have computed
  kMirrorLazy,   // SimpleOffload: stores the free blocks that the GPU's pool allocates next
  kConnector,    // OffloadScheduler: stores the prompt chunks that a step completes
};
// "eager", "lazy", "connector".
std::optional<OffloadKind> ParseOffloadKind(std::string_view name);
// Returns the rule by which the scheduler looks for loads. A router's index needs this rule.
OffloadRule OffloadRuleOf(OffloadKind kind);

struct HostTierConfig {
  int64_t cpu_blocks = 0;  // capacity in blocks; includes the null block of a mirror
  OffloadKind kind = OffloadKind::kMirrorEager;
  int64_t blocks_per_chunk = 1;  // kConnector only
  size_t block_bytes = 256;      // size of a simulated block in both pools; a multiple of 8 bytes
  EventHashForm hash_form = EventHashForm::kInt64;
};

// A request that is scheduled in a step.
struct TierRequest {
  const CacheRequest* request = nullptr;
  int64_t computed_tokens = 0;   // before the step
  int64_t scheduled_tokens = 0;  // in the step
};

}  // namespace kvcast::tools
