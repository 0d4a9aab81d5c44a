// TailStats: the counts that `kvcast tail --stats` repaints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "kvcast/core/event.h"

namespace kvcast::tools {

// Counts per topic and in total. Thread-compatible.
class TailStats {
 public:
  void Note(std::string_view topic, uint64_t seq, const EventBatch& batch, size_t payload_bytes);
  // Returns a text table. The rates are per second; `seconds` is the time since the previous table.
  std::string Table(double seconds);
  // Returns one JSON object: {"topics": {topic: {...}}, "batches": n}.
  std::string Json() const;

 private:
  struct Row {
    uint64_t batches = 0;
    uint64_t stored_blocks = 0;
    uint64_t removed_blocks = 0;
    uint64_t clears = 0;
    uint64_t bytes = 0;
    // Jumps of the sequence numbers; only meaningful if one source sends the topic.
    uint64_t gaps = 0;
    uint64_t next_seq = 0;
    uint64_t shown_batches = 0;  // at the previous table
  };
  static constexpr size_t kTopicsMax = 1000;  // further topics are counted as "(others)"

  std::map<std::string, Row, std::less<>> rows_;
};

}  // namespace kvcast::tools
