// Groups for layers of several kinds: all layers get one page size, and then form groups with about
// the same number of layers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "src/spec/field_checks.h"
#include "src/spec/layer_spec.h"

namespace kvcast::internal {
namespace {

Result<SizedLayer> WithPage(const SizedLayer& from, int64_t page) {
  LayerSpec layer = from.layer;
  if (layer.spec.kind == SpecKind::kMamba) {
    layer.padded_page_bytes = page;
    return Resize(std::move(layer));
  }
  if (page % from.page_bytes == 0) {
    const auto block_size = Product({layer.spec.block_size, page / from.page_bytes});
    if (!block_size) return Invalid(LayerField(layer, "block_size") + " gets too large");
    layer.spec.block_size = *block_size;
    if (layer.padded_page_bytes > 0) layer.padded_page_bytes = page;
    return Resize(std::move(layer));
  }
  if (layer.indexes_by_block_stride) {
    layer.padded_page_bytes = page;
    return Resize(std::move(layer));
  }
  return Invalid(
      "layer " + layer.name + ": its page of " + std::to_string(from.page_bytes) +
      " bytes cannot be brought to the size of the largest page, " + std::to_string(page) +
      " bytes: it is not a divisor of that size, and indexes_by_block_stride is not set");
}

Result<SizedLayers> UnifyPages(const SizedLayers& layers) {
  int64_t page = 0;
  for (const SizedLayer& layer : layers) page = std::max(page, layer.page_bytes);
  SizedLayers unified;
  for (const SizedLayer& layer : layers) {
    if (layer.page_bytes == page) {
      unified.push_back(layer);
      continue;
    }
    auto changed = WithPage(layer, page);
    if (!changed.ok()) return changed.status();
    unified.push_back(*std::move(changed));
  }
  return unified;
}

// Used if the pages cannot get one size. MLA layers and sliding-window layers may then form one
// group, in which the windows keep all blocks, as full attention does. nullopt: the layers cannot
// form this group, for example because their block sizes differ.
std::optional<KvCacheGroup> PromoteWindows(SizedLayers layers) {
  bool mla = false;
  for (SizedLayer& sized : layers) {
    GroupSpec& spec = sized.layer.spec;
    mla |= spec.kind == SpecKind::kMlaAttention;
    if (spec.kind == SpecKind::kSlidingWindow) {
      spec.kind = SpecKind::kFullAttention;
      spec.extra_retained_tokens = 0;
    } else if (spec.kind != SpecKind::kMlaAttention) {
      return std::nullopt;
    }
  }
  if (!mla || !IsUniformType(layers)) return std::nullopt;
  return GroupOf(layers);
}

using Bucket = std::vector<const SizedLayer*>;

// The buckets are in order of first appearance, which becomes the order of the groups.
std::vector<Bucket> BucketBySpec(const SizedLayers& layers) {
  std::vector<Bucket> buckets;
  for (const SizedLayer& layer : layers) {
    const auto same = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& bucket) {
      return HaveEqualCaches(*bucket[0], layer);
    });
    if (same == buckets.end()) {
      buckets.push_back({&layer});
    } else {
      same->push_back(&layer);
    }
  }
  return buckets;
}

// The group size is the size of the smallest bucket. Exception: if the largest bucket is less than
// 1.5 times as large as the smallest bucket, the group size is the size of the largest bucket. In
// this case, padding the smallest bucket wastes less memory than dividing a larger bucket into a
// full group and an almost empty group.
size_t GroupSize(const std::vector<Bucket>& buckets) {
  size_t smallest = buckets[0].size();
  size_t largest = 0;
  for (const Bucket& bucket : buckets) {
    smallest = std::min(smallest, bucket.size());
    largest = std::max(largest, bucket.size());
  }
  return 2 * largest < 3 * smallest ? largest : smallest;
}

// Each group takes every n-th layer, because neighbouring layers are on the same pipeline stage.
// Each stage then has a share of each group.
void SplitBucket(const Bucket& bucket, size_t group_size, std::vector<KvCacheGroup>& groups) {
  const size_t count = (bucket.size() + group_size - 1) / group_size;
  for (size_t first = 0; first < count; ++first) {
    Bucket layers;
    for (size_t i = first; i < bucket.size(); i += count) layers.push_back(bucket[i]);
    groups.push_back(GroupOf(layers));
  }
}

// The largest divisor of n that is at most `limit`. 0: no such divisor exists.
int64_t LargestDivisor(int64_t n, int64_t limit) {
  int64_t largest = 0;
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    if (i <= limit) largest = std::max(largest, i);
    if (n / i <= limit) largest = std::max(largest, n / i);
  }
  return largest;
}

// The block size of the hidden states must divide the block sizes of all groups, and the states of
// one block must fit in the groups' page.
Result<KvCacheGroup> HiddenStateGroup(const SizedLayer& hidden, int64_t divisor, int64_t page) {
  LayerSpec layer = hidden.layer;
  layer.padded_page_bytes = 0;
  layer.compress_ratio = 1;
  layer.spec.block_size = 1;
  const auto token_bytes = PageBytes(layer);
  if (!token_bytes.ok()) return token_bytes.status();
  layer.spec.block_size = LargestDivisor(divisor, page / *token_bytes);
  if (layer.spec.block_size == 0) {
    return Invalid("layer " + layer.name +
                   ": the hidden state of one token does not fit the page " + "of " +
                   std::to_string(page) + " bytes");
  }
  layer.padded_page_bytes = page;
  const auto sized = Resize(std::move(layer));
  if (!sized.ok()) return sized.status();
  return GroupOf(Bucket{&*sized});
}

Status AddHiddenStates(const SizedLayers& hidden, int64_t page, std::vector<KvCacheGroup>& groups) {
  int64_t divisor = 0;
  for (const KvCacheGroup& group : groups) divisor = std::gcd(divisor, group.spec.block_size);
  for (const SizedLayer& layer : hidden) {
    auto group = HiddenStateGroup(layer, divisor, page);
    if (!group.ok()) return group.status();
    groups.push_back(*std::move(group));
  }
  return {};
}

}  // namespace

Result<std::vector<KvCacheGroup>> PageUniformGroups(const SizedLayers& layers) {
  SizedLayers hidden;
  SizedLayers kept;
  for (const SizedLayer& layer : layers) {
    (layer.layer.hidden_state ? hidden : kept).push_back(layer);
  }
  // If a model has only hidden states, they form groups as other layers do.
  if (kept.empty()) std::swap(hidden, kept);
  const auto unified = UnifyPages(kept);
  if (!unified.ok()) {
    auto promoted = PromoteWindows(layers);
    if (promoted) return std::vector<KvCacheGroup>{*std::move(promoted)};
    return unified.status();
  }
  const std::vector<Bucket> buckets = BucketBySpec(*unified);
  const size_t group_size = GroupSize(buckets);
  std::vector<KvCacheGroup> groups;
  for (const Bucket& bucket : buckets) SplitBucket(bucket, group_size, groups);
  const Status status = AddHiddenStates(hidden, (*unified)[0].page_bytes, groups);
  if (!status.ok()) return status;
  return groups;
}

}  // namespace kvcast::internal
