// SPDX-License-Identifier: Apache-2.0
#include "src/spec/layer_spec.h"

#include <algorithm>
#include <set>

#include "src/spec/field_checks.h"

namespace kvcast {
namespace internal {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;

// Layers of different families cannot form one group (see IsUniformType).
enum class Family : uint8_t { kFull, kWindow, kChunked, kMamba, kEncoderOnly, kCross };

Family FamilyOf(SpecKind kind) {
  if (IsWindowKind(kind)) return Family::kWindow;
  switch (kind) {
    case SpecKind::kChunkedLocalAttention:
      return Family::kChunked;
    case SpecKind::kMamba:
      return Family::kMamba;
    case SpecKind::kEncoderOnlyAttention:
      return Family::kEncoderOnly;
    case SpecKind::kCrossAttention:
      return Family::kCross;
    default:
      return Family::kFull;
  }
}

Status CheckKind(const LayerSpec& layer) {
  const GroupSpec& spec = layer.spec;
  if (spec.kind == SpecKind::kUnknown) return Invalid(LayerField(layer, "kind") + " is unknown");
  if (layer.hidden_state && spec.kind != SpecKind::kMlaAttention) {
    return Invalid(LayerField(layer, "hidden_state") + " needs mla_attention");
  }
  if (spec.sliding_window > 0 && spec.chunk_size > 0) {
    return Invalid(LayerField(layer, "sliding_window") + " and chunk_size exclude each other");
  }
  if (IsWindowKind(spec.kind) && spec.sliding_window == 0) {
    return Invalid(LayerField(layer, "sliding_window") + " must not be 0");
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention && spec.chunk_size == 0) {
    return Invalid(LayerField(layer, "chunk_size") + " must not be 0");
  }
  if (spec.kind == SpecKind::kMamba && layer.state_bytes == 0) {
    return Invalid(LayerField(layer, "state_bytes") + " must not be 0 with mamba");
  }
  return {};
}

Status CheckNumbers(const LayerSpec& layer) {
  const auto tokens = [&](const char* field, int64_t value, int64_t min) {
    return CheckRange(LayerField(layer, field), value, min, kMaxTokens);
  };
  const auto bytes = [&](const char* field, int64_t value) {
    return CheckRange(LayerField(layer, field), value, 0, kMaxBytes);
  };
  return FirstError({
      tokens("block_size", layer.spec.block_size, 1),
      tokens("sliding_window", layer.spec.sliding_window, 0),
      tokens("chunk_size", layer.spec.chunk_size, 0),
      tokens("speculative_blocks", layer.spec.speculative_blocks, 0),
      tokens("extra_retained_tokens", layer.spec.extra_retained_tokens, 0),
      tokens("sink_tokens", layer.spec.sink_tokens, 0),
      tokens("reference_window", layer.spec.reference_window, 0),
      tokens("num_heads", layer.num_heads, 1),
      tokens("head_size", layer.head_size, 1),
      tokens("head_size_v", layer.head_size_v.value_or(0), 0),
      tokens("dtype_bytes", layer.dtype_bytes, 1),
      tokens("compress_ratio", layer.compress_ratio, 1),
      bytes("state_bytes", layer.state_bytes),
      bytes("padded_page_bytes", layer.padded_page_bytes),
  });
}

Status CheckCompression(const LayerSpec& layer) {
  if (layer.compress_ratio > 1 && !IsMlaKind(layer.spec.kind)) {
    return Invalid(LayerField(layer, "compress_ratio") + " needs an MLA kind");
  }
  return CheckMultiple(LayerField(layer, "block_size"), layer.spec.block_size, "compress_ratio",
                       layer.compress_ratio);
}

// nullopt: the size exceeds 63 bits.
std::optional<int64_t> UnpaddedPageBytes(const LayerSpec& layer) {
  if (layer.spec.kind == SpecKind::kMamba) return layer.state_bytes;
  const int64_t head_size_v =
      layer.head_size_v.value_or(IsMlaKind(layer.spec.kind) ? 0 : layer.head_size);
  const auto dense = Product({layer.head_size + head_size_v, layer.dtype_bytes});
  const int64_t states = layer.spec.block_size / layer.compress_ratio;
  if (layer.state_bytes > 0) return Product({layer.num_heads, states, layer.state_bytes});
  return dense ? Product({layer.num_heads, states, *dense}) : std::nullopt;
}

LayerSpec WithoutIgnoredFields(LayerSpec layer) {
  layer.name.clear();
  layer.spec.eagle = false;
  if (IsFullKind(layer.spec.kind)) layer.spec.sliding_window = layer.spec.chunk_size = 0;
  return layer;
}

}  // namespace

std::string LayerField(const LayerSpec& layer, const std::string& field) {
  return "layer " + layer.name + ": " + field;
}

Status CheckLayer(const LayerSpec& layer) {
  if (layer.name.empty()) return Invalid("a layer has no name");
  const Status numbers = CheckNumbers(layer);
  return numbers.ok() ? FirstError({CheckKind(layer), CheckCompression(layer)}) : numbers;
}

Result<SizedLayer> Resize(LayerSpec layer) {
  const auto page = PageBytes(layer);
  if (!page.ok()) return page.status();
  return SizedLayer{std::move(layer), *page};
}

Result<SizedLayers> SizeLayers(const std::vector<LayerSpec>& layers) {
  SizedLayers sized;
  std::set<std::string> names;
  for (const LayerSpec& layer : layers) {
    auto one = Resize(layer);
    if (!one.ok()) return one.status();
    if (!names.insert(layer.name).second) {
      return Invalid("layer " + layer.name + ": name is used twice");
    }
    sized.push_back(*std::move(one));
  }
  return sized;
}

bool HaveEqualCaches(const SizedLayer& a, const SizedLayer& b) {
  const LayerSpec x = WithoutIgnoredFields(a.layer);
  const LayerSpec y = WithoutIgnoredFields(b.layer);
  return x.spec == y.spec && a.page_bytes == b.page_bytes && x.num_heads == y.num_heads &&
         x.head_size == y.head_size && x.head_size_v == y.head_size_v &&
         x.dtype_bytes == y.dtype_bytes && x.compress_ratio == y.compress_ratio &&
         x.state_bytes == y.state_bytes && x.padded_page_bytes == y.padded_page_bytes &&
         x.hidden_state == y.hidden_state;
}

bool AllHaveEqualCaches(const SizedLayers& layers) {
  return std::all_of(layers.begin(), layers.end(),
                     [&](const SizedLayer& layer) { return HaveEqualCaches(layers[0], layer); });
}

bool IsUniformType(const SizedLayers& layers) {
  const GroupSpec& first = layers[0].spec();
  const Family family = FamilyOf(first.kind);
  return std::all_of(layers.begin(), layers.end(), [&](const SizedLayer& layer) {
    const GroupSpec& spec = layer.spec();
    if (spec.block_size != first.block_size || FamilyOf(spec.kind) != family) return false;
    // One block table cannot release a block for one layer and keep it for another layer.
    if (spec.reference_window != first.reference_window) return false;
    if (family == Family::kFull) return true;
    return spec.sliding_window == first.sliding_window && spec.chunk_size == first.chunk_size &&
           spec.mamba_mode == first.mamba_mode &&
           spec.speculative_blocks == first.speculative_blocks;
  });
}

KvCacheGroup GroupOf(const std::vector<const SizedLayer*>& layers) {
  KvCacheGroup group;
  group.spec = layers[0]->spec();
  if (IsFullKind(group.spec.kind)) group.spec.sliding_window = group.spec.chunk_size = 0;
  for (const SizedLayer* layer : layers) {
    const GroupSpec& spec = layer->spec();
    group.spec.eagle |= spec.eagle;
    group.spec.extra_retained_tokens =
        std::max(group.spec.extra_retained_tokens, spec.extra_retained_tokens);
    group.layers.push_back({layer->layer.name, layer->page_bytes});
  }
  return group;
}

KvCacheGroup GroupOf(const SizedLayers& layers) {
  std::vector<const SizedLayer*> pointers;
  for (const SizedLayer& layer : layers) pointers.push_back(&layer);
  return GroupOf(pointers);
}

}  // namespace internal

Result<int64_t> PageBytes(const LayerSpec& layer) {
  if (const Status status = internal::CheckLayer(layer); !status.ok()) return status;
  const auto bytes = internal::UnpaddedPageBytes(layer);
  if (!bytes || *bytes > internal::kMaxBytes) {
    return internal::Invalid("layer " + layer.name + ": the page has more than 2^62 bytes");
  }
  if (layer.padded_page_bytes == 0) return *bytes;
  if (layer.padded_page_bytes < *bytes) {
    return internal::Invalid(internal::LayerField(layer, "padded_page_bytes") + " is " +
                             std::to_string(layer.padded_page_bytes) + ", less than the page of " +
                             std::to_string(*bytes));
  }
  return layer.padded_page_bytes;
}

Result<int64_t> MaxMemoryUsageBytes(const LayerSpec& layer, const RequestLimits& limits) {
  const auto page = PageBytes(layer);
  if (!page.ok()) return page.status();
  using internal::CheckRange;
  const Status status = internal::FirstError({
      CheckRange("max_model_len", limits.max_model_len, 0, internal::kMaxTokens),
      CheckRange("max_in_flight_tokens", limits.max_in_flight_tokens, 0, internal::kMaxTokens),
      CheckRange("max_encoder_tokens", limits.max_encoder_tokens, 0, internal::kMaxTokens),
  });
  if (!status.ok()) return status;
  const auto bytes = internal::Product({MaxBlocksPerRequest(layer.spec, limits), *page});
  if (bytes) return *bytes;
  return internal::Invalid("layer " + layer.name + ": one request takes more than 2^63 bytes");
}

}  // namespace kvcast
