// KV-cache groups: decides which layers of a model share a block table.
//
// The functions follow vLLM's get_kv_cache_groups: a model gets the same groups in the same order
// as in vLLM. The position of a group in the result is the group_idx of its events. All functions
// are pure and thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// The cache of one layer, and the size of one page. A page is one block of one layer.
struct LayerSpec {
  std::string name;  // unique in a model
  // The spec of a group of such layers. block_size is per rank here. A full-attention layer may
  // have sliding_window or chunk_size: attention uses this limit, but the cache keeps all blocks.
  // eagle: the layer belongs to the draft head.
  GroupSpec spec;

  // For attention, a page has num_heads * (block_size / compress_ratio) states. A state has
  // (head_size + head_size_v) * dtype_bytes bytes.
  int64_t num_heads = 1;
  int64_t head_size = 128;
  std::optional<int64_t> head_size_v;  // default: head_size; for MLA kinds 0
  int64_t dtype_bytes = 2;
  int64_t compress_ratio = 1;  // tokens per state; MLA kinds
  // Bytes of one state if the backend uses its own packing. 0: no such packing. For Mamba: bytes of
  // the whole page; must be positive.
  int64_t state_bytes = 0;
  // Bytes of a page with padding; not less than the page without padding. 0: no padding.
  int64_t padded_page_bytes = 0;
  // True: the backend can read attention pages that are padded.
  bool indexes_by_block_stride = false;
  // True: the layer is an MLA layer that holds hidden states for extraction.
  bool hidden_state = false;
};

// Bytes of one page. Error: kInvalidArgument; the message names the field of the layer. A page of
// more than 2^62 bytes is an error too.
Result<int64_t> PageBytes(const LayerSpec& layer);

// The maximum number of bytes that one request uses in one layer: MaxBlocksPerRequest pages.
// Errors: the errors of PageBytes; kInvalidArgument also for a limit outside 0..2^31, and for a
// result that does not fit 63 bits.
Result<int64_t> MaxMemoryUsageBytes(const LayerSpec& layer, const RequestLimits& limits);

// Inputs for the decision between two modes. With the hybrid manager, each group keeps the blocks
// that its kind needs. Without the hybrid manager, all layers keep every block, as full attention
// does.
struct HybridManagerOptions {
  std::optional<bool> requested;  // nullopt: on if possible
  bool platform_supports = true;
  // False: the KV connector does not support several groups.
  bool connector_supports = true;
  bool allow_chunked_local = false;  // VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE
};

// Returns false (hybrid manager off) if `requested` is false, or if another input excludes the
// hybrid manager. Error: kInvalidArgument if the hybrid manager was requested and is excluded. KV
// events do not exclude the hybrid manager.
Result<bool> ResolveHybridManager(const std::vector<LayerSpec>& layers,
                                  const HybridManagerOptions& options);

struct KvCacheGroupOptions {
  bool hybrid_manager = true;  // false: windows and chunks become full attention
  // Number of ranks that share the tokens of attention. A block of the result covers this number of
  // blocks of a layer. Prefill context parallel does not change the block size.
  int64_t decode_context_parallel = 1;
};

// A layer in a group, with the size of its page after padding.
struct KvCacheLayer {
  std::string name;
  int64_t page_bytes = 0;
};

struct KvCacheGroup {
  GroupSpec spec;
  std::vector<KvCacheLayer> layers;
};

struct KvCacheGroups {
  std::vector<KvCacheGroup> groups;  // empty: a model without attention
  int64_t page_bytes = 0;            // equal for all layers; 0: the page sizes differ
  int64_t group_size = 0;            // number of layers of the largest group
  int64_t block_bytes = 0;           // bytes of one block of the pool; equal for every group
  int64_t decode_context_parallel = 1;
};

// Computes the groups of a model. The first rule that applies decides:
//
//   1  without the hybrid manager, unless rules 2 to 4 apply: windows and chunks become full
//      attention, with the block size of the full-attention layers; the next rules apply to the
//      result
//   2  no layers: no groups
//   3  all layers have equal specs: one group
//   4  all layers have one block size and need the same blocks, but the page sizes differ: one
//      group
//   5  windowed MLA with several page sizes: one group of the MLA layers; then the windowed layers
//      by (block size, window), split so that all groups have about the same number of layers of
//      each page size; then one group of the other layers
//   6  all other models: larger blocks or padding give all pages the same size; layers are
//      collected by spec, and split into groups of about the same number of layers, every n-th
//      layer to one group; each hidden-state layer then forms a group of its own. Exception: if the
//      pages cannot get the same size, and all layers are MLA or sliding-window layers with equal
//      block sizes, all layers form one group, and windows become full attention
//
// Error: kInvalidArgument; the message names the layer and the field if one layer causes the error.
Result<KvCacheGroups> MakeKvCacheGroups(const std::vector<LayerSpec>& layers,
                                        const KvCacheGroupOptions& options);

// Bytes of one block on a worker that holds only the layers `layer_names` of the model (pipeline
// parallelism). Error: kInvalidArgument if the result does not fit 63 bits.
Result<int64_t> BlockBytesOn(const KvCacheGroups& groups,
                             const std::vector<std::string>& layer_names);

}  // namespace kvcast
