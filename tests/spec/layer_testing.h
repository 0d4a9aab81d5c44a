// Layers of small models for the tests of groups and sizing. With num_heads 1, head_size 64 and 16
// bits, a page of one token has 256 bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kvcast/spec/kv_cache_groups.h"

namespace kvcast {

inline LayerSpec FullLayer(std::string name, int64_t block_size = 16) {
  LayerSpec layer;
  layer.name = std::move(name);
  layer.spec.block_size = block_size;
  layer.head_size = 64;
  return layer;
}
inline LayerSpec WindowLayer(std::string name, int64_t window = 64, int64_t block_size = 16) {
  LayerSpec layer = FullLayer(std::move(name), block_size);
  layer.spec.kind = SpecKind::kSlidingWindow;
  layer.spec.sliding_window = window;
  return layer;
}
inline LayerSpec ChunkedLayer(std::string name, int64_t chunk = 64, int64_t block_size = 16) {
  LayerSpec layer = FullLayer(std::move(name), block_size);
  layer.spec.kind = SpecKind::kChunkedLocalAttention;
  layer.spec.chunk_size = chunk;
  return layer;
}
inline LayerSpec MambaLayer(std::string name, int64_t block_size, int64_t state_bytes,
                            MambaMode mode = MambaMode::kAlign) {
  LayerSpec layer = FullLayer(std::move(name), block_size);
  layer.spec.kind = SpecKind::kMamba;
  layer.spec.mamba_mode = mode;
  layer.state_bytes = state_bytes;
  return layer;
}
// A page of one token has head_size * 2 bytes.
inline LayerSpec MlaLayer(std::string name, int64_t block_size = 16, int64_t head_size = 128) {
  LayerSpec layer = FullLayer(std::move(name), block_size);
  layer.spec.kind = SpecKind::kMlaAttention;
  layer.head_size = head_size;
  return layer;
}
inline LayerSpec WindowMlaLayer(std::string name, int64_t window, int64_t block_size,
                                int64_t head_size = 128) {
  LayerSpec layer = MlaLayer(std::move(name), block_size, head_size);
  layer.spec.kind = SpecKind::kSlidingWindowMla;
  layer.spec.sliding_window = window;
  return layer;
}

// Makes `count` layers PREFIX1, PREFIX2, ...
template <typename Make>
void AddLayers(std::vector<LayerSpec>& layers, const std::string& prefix, int count, Make make) {
  for (int i = 1; i <= count; ++i) layers.push_back(make(prefix + std::to_string(i)));
}
inline std::vector<LayerSpec> FullAndWindow(int full, int window) {
  std::vector<LayerSpec> layers;
  AddLayers(layers, "f", full, [](std::string name) { return FullLayer(std::move(name)); });
  AddLayers(layers, "s", window, [](std::string name) { return WindowLayer(std::move(name)); });
  return layers;
}

inline KvCacheGroups GroupsOf(const std::vector<LayerSpec>& layers,
                              const KvCacheGroupOptions& options = {}) {
  auto groups = MakeKvCacheGroups(layers, options);
  EXPECT_TRUE(groups.ok()) << groups.status().ToString();
  return groups.ok() ? *std::move(groups) : KvCacheGroups{};
}

using Names = std::vector<std::string>;
inline std::vector<Names> NamesOf(const KvCacheGroups& groups) {
  std::vector<Names> names;
  for (const KvCacheGroup& group : groups.groups) {
    names.emplace_back();
    for (const KvCacheLayer& layer : group.layers) names.back().push_back(layer.name);
  }
  return names;
}

}  // namespace kvcast
