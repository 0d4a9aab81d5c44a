// TensorRT-LLM's KV-cache events: the JSON of its serializer, as events of this library.
//
// {"event_id": 7, "window_size": 4096, "attention_dp_rank": 0, "data": {"type": "stored", ...}}
//
// A window size is a group. Hashes cannot be recomputed: the events are named by their tokens. What
// the JSON does not carry, LoRA and salts among it, cannot be told apart by the router. Event ids
// count from 0 within one life of the engine, for each attention-DP rank apart.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::router {

struct TrtllmConfig {
  // By group_idx. The largest is full attention unless `largest_is_window`.
  std::vector<int64_t> window_sizes;
  bool largest_is_window = false;
  // The engine reuses parts of blocks too (enable_partial_reuse, its default). Answers are in whole
  // blocks, so they may then be too short.
  bool partial_reuse = true;
  int64_t tokens_per_block = 0;  // > 0
  // Events of other ranks are left out; nullopt: those that name one.
  std::optional<int64_t> attention_dp_rank;
  size_t json_bytes_max = size_t{64} << 20;
  size_t hashes_max = size_t{1} << 22;  // stores beyond are refused
};

struct TrtllmCounters {
  uint64_t events = 0;          // decoded
  uint64_t bad_events = 0;      // not of the format, or of a window that is not registered
  uint64_t unknown_types = 0;   // left out
  uint64_t other_ranks = 0;     // left out
  uint64_t partial_blocks = 0;  // shorter than tokens_per_block; left out with what follows them
  uint64_t refused_hashes = 0;  // no room
  uint64_t gaps = 0;            // jumps of event_id: events were lost
  uint64_t restarts = 0;        // falls of event_id: the engine restarted
};

// The events of one rank, in order. Thread-compatible.
class TrtllmEvents {
 public:
  // Not ok: no windows, a window twice or out of range, more than kMaxGroups, or no block size.
  static Result<TrtllmEvents> Create(const TrtllmConfig& config);
  ~TrtllmEvents();
  TrtllmEvents(TrtllmEvents&&) noexcept;
  TrtllmEvents& operator=(TrtllmEvents&&) noexcept;

  // One event, or an array of them. Not ok: no JSON, or too long; removes may have been in it, so
  // all that is held is forgotten as by Forget. A stored block is one copy however often it is
  // told; where it lies is known here, because removes do not say. After a gap, and at a bad event,
  // all that is held is removed, because a remove may have been lost or unreadable. The same at a
  // restart.
  Result<EventBatch> Decode(std::string_view json);

  // The engine may hold blocks whose events were not decoded: the first event had another id than
  // 0, or since then some were lost or bad. False again after the engine restarted.
  bool lacks_events() const;
  // The reader of the events has forgotten them: their blocks are taken for lost.
  void Forget();
  // The groups of `config`, by group_idx.
  static std::vector<GroupSpec> Groups(const TrtllmConfig& config);

  TrtllmCounters counters() const;

 private:
  class Impl;
  explicit TrtllmEvents(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
