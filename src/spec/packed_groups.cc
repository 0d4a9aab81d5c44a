// Groups for windowed MLA with several page sizes (DeepSeek-V4). A tuple is one layer of each page
// size. A block holds the pages of several tuples, one after the other.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "src/spec/field_checks.h"
#include "src/spec/layer_spec.h"

namespace kvcast::internal {
namespace {

// Layers that can share a block table: the MLA layers, the windowed layers with one block size and
// one window, or the layers that are not MLA.
struct Bundle {
  SizedLayers layers;

  // The number of layers that have the most frequent page size.
  int64_t tuples() const {
    std::map<int64_t, int64_t> counts;
    int64_t most = 0;
    for (const SizedLayer& layer : layers) most = std::max(most, ++counts[layer.page_bytes]);
    return most;
  }
};

// The windowed layers, collected by (block size, window), in order of first appearance.
std::vector<Bundle> WindowBundles(const SizedLayers& layers) {
  std::vector<Bundle> bundles;
  for (const SizedLayer& layer : layers) {
    if (layer.spec().kind != SpecKind::kSlidingWindowMla) continue;
    const auto same = std::find_if(bundles.begin(), bundles.end(), [&](const Bundle& bundle) {
      const GroupSpec& spec = bundle.layers[0].spec();
      return spec.block_size == layer.spec().block_size &&
             spec.sliding_window == layer.spec().sliding_window;
    });
    if (same == bundles.end()) {
      bundles.push_back({{layer}});
    } else {
      same->layers.push_back(layer);
    }
  }
  return bundles;
}

Result<Bundle> UniformBundle(SizedLayers layers, const std::string& layer_type) {
  if (layers.empty()) return Invalid("windowed MLA layers need " + layer_type);
  if (!IsUniformType(layers)) {
    return Invalid("layer " + layers[0].layer.name + ": block_size must be equal in all " +
                   layer_type);
  }
  return Bundle{std::move(layers)};
}

// The number of tuples per group. It is at least `least`, the number of tuples of the MLA bundle,
// and at most the number of tuples of the largest bundle. In this range, the function takes the
// number with the least padding, and the largest of several such numbers.
int64_t TuplesPerGroup(int64_t least, const std::vector<Bundle>& bundles) {
  std::vector<int64_t> counts = {least};
  for (const Bundle& bundle : bundles) counts.push_back(bundle.tuples());
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  int64_t best = least;
  int64_t best_padding = -1;
  for (int64_t size = least; size <= most; ++size) {
    int64_t padding = 0;
    for (const int64_t count : counts) padding += CeilDiv(count, size) * size - count;
    if (best_padding >= 0 && padding > best_padding) continue;
    best = size;
    best_padding = padding;
  }
  return best;
}

// Pads each page to the next larger page size of the MLA layers, because the windowed layers and
// the MLA layers use the same bytes.
Status PadPages(Bundle& bundle, const std::set<int64_t>& sizes) {
  for (SizedLayer& layer : bundle.layers) {
    const auto size = sizes.lower_bound(layer.page_bytes);
    if (size == sizes.end()) {
      return Invalid("layer " + layer.layer.name + ": its page of " +
                     std::to_string(layer.page_bytes) + " bytes is larger than any MLA page");
    }
    if (*size == layer.page_bytes) continue;
    layer.layer.padded_page_bytes = *size;
    layer.page_bytes = *size;
  }
  return {};
}

// Puts every n-th tuple into one group, as rule 6 splits layers of one page size.
Status SplitBundle(const Bundle& bundle, int64_t tuples_per_group,
                   std::vector<KvCacheGroup>& groups) {
  std::vector<std::vector<const SizedLayer*>> by_size;
  for (const SizedLayer& layer : bundle.layers) {
    const auto same = std::find_if(by_size.begin(), by_size.end(), [&](const auto& layers) {
      return layers[0]->page_bytes == layer.page_bytes;
    });
    if (same == by_size.end()) {
      by_size.push_back({&layer});
    } else {
      same->push_back(&layer);
    }
  }
  const size_t tuples = by_size[0].size();
  for (const auto& layers : by_size) {
    if (layers.size() == tuples) continue;
    return Invalid("layer " + layers[0]->layer.name + ": the windowed MLA layers of one group " +
                   "need the same number of layers of each page size");
  }
  const auto count = static_cast<size_t>(CeilDiv(static_cast<int64_t>(tuples), tuples_per_group));
  for (size_t first = 0; first < count; ++first) {
    std::vector<const SizedLayer*> layers;
    for (size_t i = first; i < tuples; i += count) {
      for (const auto& of_size : by_size) layers.push_back(of_size[i]);
    }
    groups.push_back(GroupOf(layers));
  }
  return {};
}

SizedLayers Select(const SizedLayers& layers, bool mla) {
  SizedLayers selected;
  for (const SizedLayer& layer : layers) {
    const SpecKind kind = layer.spec().kind;
    if (kind == SpecKind::kSlidingWindowMla) continue;
    if ((kind == SpecKind::kMlaAttention) == mla) selected.push_back(layer);
  }
  return selected;
}

}  // namespace

Result<std::vector<KvCacheGroup>> PackedGroups(const SizedLayers& layers) {
  const auto mla = UniformBundle(Select(layers, true), "MLA layers");
  if (!mla.ok()) return mla.status();
  std::vector<Bundle> windows = WindowBundles(layers);
  const int64_t tuples = TuplesPerGroup(mla->tuples(), windows);
  std::set<int64_t> sizes;
  for (const SizedLayer& layer : mla->layers) sizes.insert(layer.page_bytes);

  std::vector<KvCacheGroup> groups = {GroupOf(mla->layers)};
  for (Bundle& bundle : windows) {
    const Status padded = PadPages(bundle, sizes);
    const Status split = padded.ok() ? SplitBundle(bundle, tuples, groups) : padded;
    if (!split.ok()) return split;
  }
  // A draft head may add layers with dense attention.
  SizedLayers others = Select(layers, false);
  if (others.empty()) return groups;
  const auto other_bundle = UniformBundle(std::move(others), "layers that are not MLA");
  if (!other_bundle.ok()) return other_bundle.status();
  groups.push_back(GroupOf(other_bundle->layers));
  return groups;
}

}  // namespace kvcast::internal
