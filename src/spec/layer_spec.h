// Layers while groups are formed: what makes two of them share a group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/spec/kv_cache_groups.h"

namespace kvcast::internal {

// A layer whose page is known.
struct SizedLayer {
  LayerSpec layer;
  int64_t page_bytes = 0;

  const GroupSpec& spec() const { return layer.spec; }
};
using SizedLayers = std::vector<SizedLayer>;

inline bool IsMlaKind(SpecKind kind) {
  return kind == SpecKind::kMlaAttention || kind == SpecKind::kSlidingWindowMla;
}

// `field` of a layer, for errors.
std::string LayerField(const LayerSpec& layer, const std::string& field);

Status CheckLayer(const LayerSpec& layer);

// Checks each layer, and that names are unique.
Result<SizedLayers> SizeLayers(const std::vector<LayerSpec>& layers);

// The layer with its page after a change.
Result<SizedLayer> Resize(LayerSpec layer);

// Equal in all that a block table and a page depend on; a window that full attention only remembers
// and the draft head are none of it.
bool KeepTheSame(const SizedLayer& a, const SizedLayer& b);
bool AllKeepTheSame(const SizedLayers& layers);

// The same block table fits all, though pages may differ: one block size, one family of kinds, one
// window, chunk or number of speculative blocks.
bool IsUniformType(const SizedLayers& layers);

// One group of these layers, in this order. The first layer's spec stands for all.
KvCacheGroup GroupOf(const std::vector<const SizedLayer*>& layers);
KvCacheGroup GroupOf(const SizedLayers& layers);

// Rule 5. REQUIRES: a windowed MLA layer.
Result<std::vector<KvCacheGroup>> PackedGroups(const SizedLayers& layers);
// Rule 6. REQUIRES: at least one layer.
Result<std::vector<KvCacheGroup>> PageUniformGroups(const SizedLayers& layers);

}  // namespace kvcast::internal
