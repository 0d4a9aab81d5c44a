// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/presets.h"

namespace kvcast::tools {
namespace {

constexpr int64_t kBlockSize = 16;

// K and V with 2 bytes per value, for every layer of a group.
constexpr size_t BlockBytes(size_t layers, size_t kv_heads, size_t head_size) {
  return layers * kBlockSize * kv_heads * head_size * 2 * 2;
}

GroupSpec Full() { return {.kind = SpecKind::kFullAttention, .block_size = kBlockSize}; }

GroupSpec Window(int64_t tokens) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = tokens};
}

}  // namespace

const std::vector<ModelPreset>& ModelPresets() {
  static const std::vector<ModelPreset>* presets = new std::vector<ModelPreset>{
      {"hybrid",
       {Full(), Window(1024), Window(1024), Window(1024)},
       120000,
       BlockBytes(12, 8, 128)},
      {"full", {Full()}, 75000, BlockBytes(32, 8, 128)},
      {"full-swa", {Full(), Window(1024)}, 150000, BlockBytes(16, 8, 128)},
      {"gemma3",
       {Window(512), Window(512), Window(512), Window(512), Window(512), Window(512), Full()},
       500000,
       BlockBytes(10, 16, 128)},
      {"gpt-oss", {Window(128), Full()}, 150000, BlockBytes(12, 8, 64)},
  };
  return *presets;
}

Result<ModelPreset> FindModelPreset(std::string_view name) {
  std::string names;
  for (const ModelPreset& preset : ModelPresets()) {
    if (preset.name == name) return preset;
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  return Status(StatusCode::kInvalidArgument,
                "unknown model '" + std::string(name) + "'; expected one of: " + names);
}

}  // namespace kvcast::tools
