// ChunkDescriber: describes the blocks of a chunk, for the events that announce the chunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/offload/connector/event_writer.h"
#include "src/offload/connector/request_state.h"

namespace kvcast::offload {

class ChunkDescriber {
 public:
  // If events are off, describes no group, because only the event of a removal deletes a
  // description. With config.compatible, describes only groups of full kinds, without extra keys,
  // as in vLLM.
  ChunkDescriber(const OffloadLayout& layout, const OffloadSchedulerConfig& config)
      : layout_(layout),
        enabled_(config.self_describing_events && config.memory.enable_events),
        plain_(config.compatible) {}

  // True if the events of this group's chunks contain more than the hash.
  bool Describes(size_t group) const {
    return enabled_ && !(plain_ && layout_.groups[group].window_chunks);
  }
  // REQUIRES: the request's chain and tokens reach the end of the chunk.
  ChunkRecord Chunk(const RequestState& state, size_t group, int64_t chunk) const;
  // Describes the first part of a block. The part ends at `boundary` tokens, and is divided into
  // hash units.
  ChunkRecord Tail(const RequestState& state, size_t group, int64_t boundary) const;

 private:
  ChunkRecord Record(const RequestState& state, int64_t begin, int64_t end, int64_t block_size,
                     bool last_only) const;

  const OffloadLayout& layout_;
  const bool enabled_;
  const bool plain_;
};

}  // namespace kvcast::offload
