// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/kv_cache_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/spec/field_checks.h"
#include "src/spec/layer_spec.h"

namespace kvcast {
namespace {

using internal::CheckRange;
using internal::Invalid;
using internal::LayerField;
using internal::Resize;
using internal::SizedLayer;
using internal::SizedLayers;

constexpr char kBlockTooLarge[] = "one block takes more than 2^63 bytes";

bool IsOneGroup(const SizedLayers& layers) {
  return layers.empty() || AllHaveEqualCaches(layers) || IsUniformType(layers);
}

// The common block size of the full-attention layers.
Result<int64_t> FullBlockSize(const SizedLayers& layers) {
  int64_t size = 0;
  for (const SizedLayer& layer : layers) {
    if (!IsFullKind(layer.spec().kind)) continue;
    if (size != 0 && size != layer.spec().block_size) {
      return Invalid(
          "without the hybrid manager, all full-attention layers need the same block_size, not " +
          std::to_string(size) + " and " + std::to_string(layer.spec().block_size));
    }
    size = layer.spec().block_size;
  }
  if (size > 0) return size;
  return Invalid(
      "without the hybrid manager, a model whose layers do not form one group needs a "
      "full-attention "
      "layer");
}

Result<SizedLayer> AsFullAttention(LayerSpec layer, int64_t block_size) {
  GroupSpec& spec = layer.spec;
  if (spec.kind == SpecKind::kSlidingWindowMla) {
    spec.kind = SpecKind::kMlaAttention;
    spec.sliding_window = 0;
  } else {
    spec.kind = SpecKind::kFullAttention;
  }
  spec.extra_retained_tokens = 0;
  if (layer.padded_page_bytes > 0 && spec.block_size != block_size) {
    const auto scaled = internal::Product({layer.padded_page_bytes, block_size});
    if (!scaled) return Invalid(LayerField(layer, "padded_page_bytes") + " is too large");
    layer.padded_page_bytes = CeilDiv(*scaled, spec.block_size);
  }
  spec.block_size = block_size;
  return Resize(std::move(layer));
}

// Rule 1: without the hybrid manager, windows and chunks become full attention.
Status ConvertToFullAttention(SizedLayers& layers) {
  if (IsOneGroup(layers)) return {};
  const auto block_size = FullBlockSize(layers);
  if (!block_size.ok()) return block_size.status();
  for (SizedLayer& layer : layers) {
    const SpecKind kind = layer.spec().kind;
    if (!IsWindowKind(kind) && kind != SpecKind::kChunkedLocalAttention) continue;
    auto converted = AsFullAttention(layer.layer, *block_size);
    if (!converted.ok()) return converted.status();
    layer = *std::move(converted);
  }
  if (IsOneGroup(layers)) return {};
  return Invalid("without the hybrid manager, the layers cannot all become full attention");
}

// All full-attention layers that have a window must have the same window, because attention is
// computed with this window. The same holds for chunks. Windows and chunks must not be mixed.
Status CheckFullAttentionLimits(const SizedLayers& layers) {
  std::set<int64_t> windows;
  std::set<int64_t> chunks;
  for (const SizedLayer& layer : layers) {
    if (!IsFullKind(layer.spec().kind)) continue;
    if (layer.spec().sliding_window > 0) windows.insert(layer.spec().sliding_window);
    if (layer.spec().chunk_size > 0) chunks.insert(layer.spec().chunk_size);
  }
  if (!windows.empty() && !chunks.empty()) {
    return Invalid(
        "a model must not have full-attention layers with sliding_window and others with "
        "chunk_size");
  }
  if (windows.size() <= 1 && chunks.size() <= 1) return {};
  return Invalid(std::string("full-attention layers must not have different positive values of ") +
                 (windows.empty() ? "chunk_size" : "sliding_window"));
}

bool IsPacked(const SizedLayers& layers) {
  const bool windowed_mla = std::any_of(layers.begin(), layers.end(), [](const SizedLayer& layer) {
    return layer.spec().kind == SpecKind::kSlidingWindowMla;
  });
  return windowed_mla && std::any_of(layers.begin(), layers.end(), [&](const SizedLayer& layer) {
           return layer.page_bytes != layers[0].page_bytes;
         });
}

Result<std::vector<KvCacheGroup>> FormGroups(const SizedLayers& layers) {
  if (layers.empty()) return std::vector<KvCacheGroup>{};
  if (IsOneGroup(layers)) return std::vector<KvCacheGroup>{GroupOf(layers)};
  return IsPacked(layers) ? PackedGroups(layers) : PageUniformGroups(layers);
}

Status SplitOverRanks(std::vector<KvCacheGroup>& groups, int64_t ranks) {
  const Status range = CheckRange("decode_context_parallel", ranks, 1, internal::kMaxTokens);
  if (!range.ok() || ranks == 1) return range;
  for (KvCacheGroup& group : groups) {
    GroupSpec& spec = group.spec;
    if (spec.kind == SpecKind::kMamba) continue;
    if (!IsFullKind(spec.kind)) {
      return Invalid("layer " + group.layers[0].name + ": decode_context_parallel does not work " +
                     "with " + std::string(SpecKindName(spec.kind)));
    }
    spec.block_size *= ranks;
    const Status size = CheckRange("layer " + group.layers[0].name + ": block_size over all ranks",
                                   spec.block_size, 1, internal::kMaxTokens);
    if (!size.ok()) return size;
  }
  return {};
}

// The layers of one group with the same page size lie side by side in a block. Layers of different
// groups use the same bytes. nullopt: the size exceeds 63 bits.
template <typename IsIncluded>
std::optional<int64_t> BlockBytesOf(const std::vector<KvCacheGroup>& groups,
                                    IsIncluded is_included) {
  std::map<int64_t, int64_t> slots;  // number of pages by page size
  for (const KvCacheGroup& group : groups) {
    std::map<int64_t, int64_t> layers;
    for (const KvCacheLayer& layer : group.layers) {
      if (is_included(layer.name)) ++layers[layer.page_bytes];
    }
    for (const auto& [page, count] : layers) slots[page] = std::max(slots[page], count);
  }
  int64_t bytes = 0;
  for (const auto& [page, count] : slots) {
    const auto product = internal::Product({page, count});
    if (!product || __builtin_add_overflow(bytes, *product, &bytes)) return std::nullopt;
  }
  return bytes;
}

int64_t CommonPage(const std::vector<KvCacheGroup>& groups) {
  std::set<int64_t> pages;
  for (const KvCacheGroup& group : groups) {
    for (const KvCacheLayer& layer : group.layers) pages.insert(layer.page_bytes);
  }
  return pages.size() == 1 ? *pages.begin() : 0;
}

}  // namespace

Result<bool> ResolveHybridManager(const std::vector<LayerSpec>& layers,
                                  const HybridManagerOptions& options) {
  const bool chunked = std::any_of(layers.begin(), layers.end(), [](const LayerSpec& layer) {
    return layer.spec.kind == SpecKind::kChunkedLocalAttention;
  });
  const bool eagle = std::any_of(layers.begin(), layers.end(),
                                 [](const LayerSpec& layer) { return layer.spec.eagle; });
  std::string conflict;
  if (!options.platform_supports) conflict = "the platform does not support it";
  if (!options.connector_supports) conflict = "the KV connector does not support it";
  if (chunked && eagle) conflict = "chunked local attention does not work with eagle";
  if (chunked && !eagle && !options.allow_chunked_local) {
    conflict = "chunked local attention needs allow_chunked_local";
  }
  if (conflict.empty()) return options.requested.value_or(true);
  if (options.requested.value_or(false)) return Invalid("hybrid manager: " + conflict);
  return false;
}

Result<KvCacheGroups> MakeKvCacheGroups(const std::vector<LayerSpec>& layers,
                                        const KvCacheGroupOptions& options) {
  auto sized = internal::SizeLayers(layers);
  if (!sized.ok()) return sized.status();
  Status status;
  if (!options.hybrid_manager) status = ConvertToFullAttention(*sized);
  if (status.ok()) status = CheckFullAttentionLimits(*sized);
  if (!status.ok()) return status;
  auto groups = FormGroups(*sized);
  if (!groups.ok()) return groups.status();
  status = SplitOverRanks(*groups, options.decode_context_parallel);
  if (!status.ok()) return status;

  KvCacheGroups result;
  const auto bytes = BlockBytesOf(*groups, [](const std::string&) { return true; });
  if (!bytes) return Invalid(kBlockTooLarge);
  result.block_bytes = *bytes;
  result.page_bytes = CommonPage(*groups);
  for (const KvCacheGroup& group : *groups) {
    result.group_size = std::max(result.group_size, static_cast<int64_t>(group.layers.size()));
  }
  result.groups = *std::move(groups);
  result.decode_context_parallel = options.decode_context_parallel;
  return result;
}

Result<int64_t> BlockBytesOn(const KvCacheGroups& groups,
                             const std::vector<std::string>& layer_names) {
  const std::set<std::string> names(layer_names.begin(), layer_names.end());
  const auto bytes =
      BlockBytesOf(groups.groups, [&](const std::string& name) { return names.count(name) > 0; });
  if (!bytes) return Invalid(kBlockTooLarge);
  return *bytes;
}

}  // namespace kvcast
