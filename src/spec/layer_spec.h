// The layers of a model while groups are formed, and the conditions under which layers share a
// group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/spec/kv_cache_groups.h"

namespace kvcast::internal {

// A layer with a known page size.
struct SizedLayer {
  LayerSpec layer;
  int64_t page_bytes = 0;

  const GroupSpec& spec() const { return layer.spec; }
};
using SizedLayers = std::vector<SizedLayer>;

inline bool IsMlaKind(SpecKind kind) {
  return kind == SpecKind::kMlaAttention || kind == SpecKind::kSlidingWindowMla;
}

// The name of `field` of a layer, for error messages.
std::string LayerField(const LayerSpec& layer, const std::string& field);

Status CheckLayer(const LayerSpec& layer);

// Checks each layer, and checks that the names are unique.
Result<SizedLayers> SizeLayers(const std::vector<LayerSpec>& layers);

// Checks a changed layer, and computes its page size again.
Result<SizedLayer> Resize(LayerSpec layer);

// True if both layers are equal in all fields that a block table and a page depend on. Not
// compared: the draft head flag, and the window or chunk of a full-attention layer, because its
// cache keeps all blocks.
bool HaveEqualCaches(const SizedLayer& a, const SizedLayer& b);
bool AllHaveEqualCaches(const SizedLayers& layers);

// True if one block table fits all layers; their pages may differ. The layers then have one block
// size, one reference window and one family of kinds. Outside the family of full kinds, they also
// have one window, chunk size, Mamba mode and number of speculative blocks. REQUIRES: at least one
// layer.
bool IsUniformType(const SizedLayers& layers);

// Makes one group of these layers, in this order. REQUIRES: at least one layer. The group has the
// spec of the first layer, with three changes: `eagle` is set if any layer has it,
// extra_retained_tokens is the maximum, and full kinds have no window and no chunk.
KvCacheGroup GroupOf(const std::vector<const SizedLayer*>& layers);
KvCacheGroup GroupOf(const SizedLayers& layers);

// Rule 5 of MakeKvCacheGroups. REQUIRES: at least one windowed MLA layer.
Result<std::vector<KvCacheGroup>> PackedGroups(const SizedLayers& layers);
// Rule 6 of MakeKvCacheGroups. REQUIRES: at least one layer.
Result<std::vector<KvCacheGroup>> PageUniformGroups(const SizedLayers& layers);

}  // namespace kvcast::internal
