// What the blocks of a chunk are, for the events that announce it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/offload/connector/event_writer.h"
#include "src/offload/connector/request_state.h"

namespace kvcast::offload {

class ChunkDescriber {
 public:
  // plain: as vLLM does, groups of full kinds only and no extra keys.
  ChunkDescriber(const OffloadLayout& layout, bool enabled, bool plain)
      : layout_(layout), enabled_(enabled), plain_(plain) {}

  // Whether chunks of this group are announced with more than their hash.
  bool Describes(size_t group) const {
    return enabled_ && !(plain_ && layout_.groups[group].window_chunks);
  }
  // REQUIRES: the request's chain and tokens reach the end.
  ChunkRecord Chunk(const RequestState& state, size_t group, int64_t chunk) const;
  // The part of a block up to `boundary` tokens, in hash units.
  ChunkRecord Tail(const RequestState& state, size_t group, int64_t boundary) const;

 private:
  ChunkRecord Record(const RequestState& state, int64_t begin, int64_t end, int64_t block_size,
                     bool last_only) const;

  const OffloadLayout& layout_;
  const bool enabled_;
  const bool plain_;
};

}  // namespace kvcast::offload
