// Writes batches of this library as TensorRT-LLM's KV-cache events: the counterpart of
// TrtllmEvents, for the demo and for tests. The JSON is compact and has the members of
// TensorRT-LLM's serializer.
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
  std::vector<int64_t> window_sizes;  // by group_idx; all different
  int64_t tokens_per_block = 0;
  std::optional<int64_t> attention_dp_rank;
};

// One rank of one engine. A TensorRT-LLM block is in one tier: if a block is on the GPU and in
// host memory, only the GPU's copy is announced. When that copy is removed, the writer sends a
// change of the cache level. A second copy in one tier is not announced. Thread-compatible.
class TrtllmWriter {
 public:
  explicit TrtllmWriter(TrtllmWriterConfig config);

  // Appends a JSON array of the changes of the batch. The first array begins with the engine's
  // "created" events. Not ok: the format cannot represent the batch (a group without a window,
  // another block size, token pairs, a number of tokens that does not fit the blocks, storage,
  // extra keys, salts, adapters). A block without tokens is accepted only in host memory, and only
  // if the engine held the block before the batch. After an error, nothing is appended, and the
  // writer's state is unchanged.
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
  // Begin writes the start of an event, up to the type of its data. End closes the data and writes
  // the members after it.
  void Begin(size_t group, const char* type);
  void End();
  void WriteUpdate(size_t group, const BlockHash& hash, bool to_gpu);

  const TrtllmWriterConfig config_;
  std::vector<Blocks> blocks_;  // by group_idx
  int64_t next_id_ = 0;
  size_t begun_group_ = 0;
  std::string json_;
};

}  // namespace kvcast::router
