// Batches of this library as TensorRT-LLM's KV-cache events: a peer for TrtllmEvents in the demo
// and in tests. Compact JSON with the members of TensorRT-LLM's serializer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/core/tier.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

struct TrtllmWriterConfig {
  std::vector<int64_t> window_sizes;  // by group_idx, each once
  int64_t tokens_per_block = 0;
  std::optional<int64_t> attention_dp_rank;
};

// One rank of one engine. A block of TensorRT-LLM lies in one place: of a block that lies on the
// GPU and in host memory only the GPU's copy is told. When that copy is removed, the event is a
// change of the cache level. A second copy in one tier is not told. Thread-compatible.
class TrtllmWriter {
 public:
  explicit TrtllmWriter(TrtllmWriterConfig config);

  // Appends a JSON array of what the batch changes; the first one begins with the engine's
  // "created" events. Not ok: the batch holds what the format cannot tell (a group without a
  // window, another block size, fewer tokens than blocks, a block without tokens on the GPU,
  // storage, extra keys, salts, adapters); nothing is appended, and nothing changed.
  Status Write(const EventBatch& batch, std::string& out);

  int64_t next_event_id() const { return next_id_; }

 private:
  struct Places {
    bool gpu = false;
    bool cpu = false;
  };
  using Blocks = std::unordered_map<BlockHash, Places, SeededHash>;

  Status Check(const EventBatch& batch) const;
  Status Check(const BlockStored& event) const;
  void Add(const BlockStored& event);
  void Add(const BlockRemoved& event);
  void Add(const AllBlocksCleared& event);
  void Remove(size_t group, const BlockHash& hash, Tier tier);
  // Opens an event up to its data, and closes it.
  void Begin(size_t group, const char* type);
  void End();
  void WriteUpdate(size_t group, const BlockHash& hash, bool to_gpu);

  const TrtllmWriterConfig config_;
  std::vector<Blocks> blocks_;  // by group
  int64_t next_id_ = 0;
  size_t begun_group_ = 0;
  std::string json_;
};

}  // namespace kvcast::router
