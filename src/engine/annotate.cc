// SPDX-License-Identifier: Apache-2.0
#include "src/engine/annotate.h"

#include <string>

namespace kvcast::engine {

Status Annotate(std::span<const GroupSpec> groups, BlockStored& event) {
  event.kv_cache_spec_kind.reset();
  event.kv_cache_spec_sliding_window.reset();
  if (!event.group_idx) return {};
  if (*event.group_idx < 0 || *event.group_idx >= static_cast<int64_t>(groups.size())) {
    return {StatusCode::kInvalidArgument,
            "a stored event has group_idx " + std::to_string(*event.group_idx) +
                ", but there are " + std::to_string(groups.size()) + " groups"};
  }
  const GroupSpec& spec = groups[static_cast<size_t>(*event.group_idx)];
  event.kv_cache_spec_kind = SpecKindName(spec.kind);
  if (IsWindowKind(spec.kind)) event.kv_cache_spec_sliding_window = spec.sliding_window;
  return {};
}

}  // namespace kvcast::engine
