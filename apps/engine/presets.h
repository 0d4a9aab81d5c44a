// A model preset has the KV-cache groups of one model and a pool size. The pool is so small that a
// chat trace causes evictions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::tools {

struct ModelPreset {
  std::string_view name;
  std::vector<GroupSpec> groups;
  int64_t default_blocks;  // blocks in one engine's pool, including the null block
  // Size in bytes of a block of any group, for a model of this kind with 2 bytes per value.
  size_t block_bytes;
};

const std::vector<ModelPreset>& ModelPresets();

// Error: the message lists the known names.
Result<ModelPreset> FindModelPreset(std::string_view name);

}  // namespace kvcast::tools
