// From layers to KV-cache groups: which layers of a model share a block table.
//
// Follows vLLM's get_kv_cache_groups, so that a model gets the same groups in the same order here
// as there: the position in the result is the group_idx of its events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// What one layer keeps: its cache, and the bytes of one page, which is one block of one layer.
struct LayerSpec {
  std::string name;  // unique in a model
  // The cache of a group of such layers. block_size is per rank here. A full-attention layer may
  // carry sliding_window or chunk_size: attention is computed with it, but all blocks are kept.
  // eagle: a layer of the draft head.
  GroupSpec spec;

  // Attention: page = num_heads * (block_size / compress_ratio) * state bytes, where a state is
  // (head_size + head_size_v) * dtype_bytes.
  int64_t num_heads = 1;
  int64_t head_size = 128;
  std::optional<int64_t> head_size_v;  // by default head_size, with MLA kinds 0
  int64_t dtype_bytes = 2;
  int64_t compress_ratio = 1;  // tokens per state; MLA kinds
  // Bytes of one state where the backend packs it in its own way; with Mamba the whole page, > 0.
  int64_t state_bytes = 0;
  int64_t padded_page_bytes = 0;         // what a page takes if that is more; 0: no padding
  bool indexes_by_block_stride = false;  // the backend can read attention pages that are padded
  bool hidden_state = false;             // MLA layer that holds hidden states for extraction
};

// Bytes of one page. Errors name the field of the layer; also when the product passes 63 bits.
Result<int64_t> PageBytes(const LayerSpec& layer);

// The most memory that one request takes in one layer: MaxBlocksPerRequest pages.
Result<int64_t> MaxMemoryUsageBytes(const LayerSpec& layer, const RequestLimits& limits);

// Whether groups keep caches of different kinds, or all layers keep what full attention keeps.
struct HybridManagerOptions {
  std::optional<bool> requested;  // nullopt: on where possible
  bool platform_supports = true;
  bool connector_supports = true;    // false: a KV connector without support of several groups
  bool allow_chunked_local = false;  // VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE
};

// On unless something stands against it; an error if it was asked for all the same. KV events are
// not among the reasons.
Result<bool> ResolveHybridManager(const std::vector<LayerSpec>& layers,
                                  const HybridManagerOptions& options);

struct KvCacheGroupOptions {
  bool hybrid_manager = true;  // false: windows and chunks become full attention
  // Ranks that share the tokens of attention: a block of the result covers this many blocks of a
  // layer. Prefill context parallel multiplies nothing.
  int64_t decode_context_parallel = 1;
};

// A layer as it came out: its page after padding.
struct KvCacheLayer {
  std::string name;
  int64_t page_bytes = 0;
};

struct KvCacheGroup {
  GroupSpec spec;
  std::vector<KvCacheLayer> layers;
};

struct KvCacheGroups {
  std::vector<KvCacheGroup> groups;  // empty for a model without attention
  int64_t page_bytes = 0;            // of every layer; 0: layers differ
  int64_t group_size = 0;            // layers of the largest group
  int64_t block_bytes = 0;           // what one block takes in all layers, the same for every group
  int64_t decode_context_parallel = 1;
};

// The groups of a model, by the first of these rules that fits:
//   1  without hybrid manager: windows and chunks become full attention with its block size
//   2  no layers: no groups
//   3  all layers keep the same: one group
//   4  the same blocks of different page sizes: one group
//   5  windowed MLA with several page sizes: the MLA layers, then the windowed ones by (block size,
//      window), split so that all groups have about as many layers of each page size
//   6  pages are brought to one size, by larger blocks or by padding; layers are taken together by
//      spec, and split into groups of about the same number of layers, every n-th layer to one
//      group
// Errors are kInvalidArgument and name the layer and the field.
Result<KvCacheGroups> MakeKvCacheGroups(const std::vector<LayerSpec>& layers,
                                        const KvCacheGroupOptions& options);

// What one block takes on a worker that holds only `layer_names` of the model (pipeline parallel).
Result<int64_t> BlockBytesOn(const KvCacheGroups& groups,
                             const std::vector<std::string>& layer_names);

}  // namespace kvcast
