// The configurations of the content test.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/content/run_config.h"

namespace kvcast::content {

inline GroupSpec Full(int64_t block_size = 4) { return {.block_size = block_size}; }
inline GroupSpec Window(int64_t window, int64_t block_size = 4) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
inline GroupSpec Chunked(int64_t chunk) {
  return {.kind = SpecKind::kChunkedLocalAttention, .block_size = 4, .chunk_size = chunk};
}
inline GroupSpec Eagle(GroupSpec spec) {
  spec.eagle = true;
  return spec;
}
inline GroupSpec Mamba(MambaMode mode) {
  return {.kind = SpecKind::kMamba, .block_size = 4, .mamba_mode = mode};
}

// Groups, cell bytes, and a pool that is too small for the requests of a run.
inline std::vector<RunConfig> Models() {
  return {
      {.name = "Full",
       .groups = {Full()},
       .cell_bytes = {24},
       .num_blocks = 60,
       .host_blocks = 120},
      {.name = "FullWindow", .groups = {Full(), Window(10)}, .cell_bytes = {24, 8}},
      {.name = "EagleFullWindow",
       .groups = {Eagle(Full()), Eagle(Window(10))},
       .cell_bytes = {24, 8}},
      {.name = "ThreeSizes",
       .groups = {Full(16), Window(24, 8), Window(6)},
       .cell_bytes = {16, 24, 8},
       .num_blocks = 110},
      {.name = "FullChunked",
       .groups = {Full(), Chunked(16)},
       .cell_bytes = {8, 16},
       .num_blocks = 80},
      {.name = "FullStates", .groups = {Full(), Mamba(MambaMode::kAll)}, .cell_bytes = {8, 24}},
      {.name = "FullAlignedStates",
       .groups = {Full(), Mamba(MambaMode::kAlign)},
       .cell_bytes = {8, 40}},
      {.name = "WindowChunkedStates",
       .groups = {Full(), Window(10), Chunked(16), Mamba(MambaMode::kAlign)},
       .cell_bytes = {8, 16, 8, 8},
       .num_blocks = 150,
       .host_blocks = 300},
      {.name = "Window",
       .groups = {Window(12)},
       .cell_bytes = {16},
       .num_blocks = 60,
       .host_blocks = 40},
  };
}

inline std::vector<RunConfig> Mixes() {
  std::vector<RunConfig> mixes;
  for (const RunConfig& model : Models()) {
    const auto add = [&](const char* name, TierKind tier, int64_t blocks_per_chunk) {
      RunConfig& mix = mixes.emplace_back(model);
      mix.name += name;
      mix.tier = tier;
      mix.blocks_per_chunk = blocks_per_chunk;
    };
    add("Connector", TierKind::kConnector, 1);
    if (model.name == "FullChunked") add("ConnectorChunksOf2", TierKind::kConnector, 2);
    add("ConnectorChunksOf3", TierKind::kConnector, 3);
    if (!IsFullKind(model.groups[0].kind)) continue;  // a mirror needs full attention
    add("SimpleEager", TierKind::kSimpleEager, 1);
    add("SimpleLazy", TierKind::kSimpleLazy, 1);
  }
  return mixes;
}

inline RunConfig Mix(const std::string& name) {
  for (const RunConfig& mix : Mixes()) {
    if (mix.name == name) return mix;
  }
  return {};
}

}  // namespace kvcast::content
