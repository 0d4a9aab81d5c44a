// Model presets: the KV-cache groups of typical models, with a pool size that makes a chat trace
// evict.
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
  std::string_view what;
  std::vector<GroupSpec> groups;
  int64_t default_blocks;  // pool of one engine, null block included
  // Of a KV block of any group, at 2 bytes a value: as in a model of this kind.
  size_t block_bytes;
};

const std::vector<ModelPreset>& ModelPresets();

// Error: lists the names there are.
Result<ModelPreset> FindModelPreset(std::string_view name);

}  // namespace kvcast::tools
