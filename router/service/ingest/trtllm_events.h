// TensorRT-LLM's KV-cache events: decodes the JSON of its serializer into events of this library.
//
// {"event_id": 7, "window_size": 4096, "attention_dp_rank": 0, "data": {"type": "stored", ...}}
//
// Each window size is a group. The hashes cannot be recomputed, so the blocks are named by their
// tokens. The JSON lacks some inputs that separate prefixes, for example LoRA adapters and salts.
// The router cannot distinguish prefixes that differ only in these inputs. A block whose JSON has
// such an input matches no query. Event ids count from 0 after each start of the engine, separately
// for each attention-DP rank.
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
  // By group_idx. If `largest_is_window` is false, the largest window is full attention.
  std::vector<int64_t> window_sizes;
  bool largest_is_window = false;
  // True: the engine also reuses parts of blocks (enable_partial_reuse, its default). Answers count
  // only whole blocks, so the engine may reuse more than the answer.
  bool partial_reuse = true;
  int64_t tokens_per_block = 0;  // > 0
  // Events of other ranks are left out. nullopt: events that name a rank are left out.
  std::optional<int64_t> attention_dp_rank;
  size_t json_bytes_max = size_t{64} << 20;  // a text of this length may have about 2^23 values
  // Maximum number of held hashes of all groups together. Stores of further hashes are refused.
  size_t hashes_max = size_t{1} << 22;
  // If the events of one text become this number of events, the latest event counts as a bad event,
  // and the events after it are not decoded.
  size_t batch_events_max = size_t{1} << 17;
};

struct TrtllmCounters {
  uint64_t events = 0;         // decoded events, including events of unknown types
  uint64_t bad_events = 0;     // events with a wrong format, or of a window that is not registered
  uint64_t unknown_types = 0;  // events of an unknown type; left out
  uint64_t other_ranks = 0;    // events of other ranks; left out
  // Blocks whose number of tokens is not tokens_per_block, and the blocks after them in the same
  // event; left out.
  uint64_t partial_blocks = 0;
  uint64_t refused_hashes = 0;  // hashes refused because of hashes_max
  uint64_t gaps = 0;            // gaps in the event ids: events were lost
  uint64_t restarts = 0;        // event ids not above the previous id: the engine restarted
};

// Decodes the events of one rank, in order. Thread-compatible.
class TrtllmEvents {
 public:
  // Not ok: no windows, a window that is repeated or out of range, more than kMaxGroups windows, or
  // a block size out of range.
  static Result<TrtllmEvents> Create(const TrtllmConfig& config);
  ~TrtllmEvents();
  TrtllmEvents(TrtllmEvents&&) noexcept;
  TrtllmEvents& operator=(TrtllmEvents&&) noexcept;

  // Decodes one event, or an array of events. kMalformed: the text is not JSON. kLimit: the text is
  // too long, or has too many values. After an error, a remove may be missing. The decoder then
  // drops all held blocks, as Forget does, and the caller must drop its blocks too. A stored block
  // counts as one copy, even if the engine stores it again. The decoder keeps the tier of each
  // block, because removes do not name the tier. After a gap or a bad event, a remove may be
  // missing. After a restart, the blocks are gone. In these three cases, the batch removes all held
  // blocks.
  Result<EventBatch> Decode(std::string_view json);

  // True: the latest decoded text has an event of this rank, or an event that has a wrong format.
  bool has_events() const;
  // True: the engine may hold blocks whose events were not decoded. Three causes are possible: the
  // event with id 0 was not decoded; a later event was lost, bad or refused; Forget was called.
  // The value becomes false with the next event with id 0, which the engine sends after a restart.
  bool lacks_events() const;
  // Call if the reader of the events has dropped its blocks. The decoder then drops its blocks too,
  // and lacks_events() is true.
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
