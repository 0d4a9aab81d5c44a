// BatchEncoder: writes a batch event by event, so that the producer need not hold all events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/wire/wire.h"
#include "src/wire/layout.h"
#include "src/wire/writer.h"

namespace kvcast::wire {

class BatchEncoder {
 public:
  // Appends to `out`, which must outlive the encoder. `events`: the number of events that the
  // caller will add.
  BatchEncoder(Dialect dialect, double ts, size_t events, std::vector<uint8_t>& out);

  // If a decoder would refuse an event, that event and all later events are not written.
  void Add(const BlockStored& event);
  void Add(const BlockRemoved& event);
  void Add(const AllBlocksCleared& event);
  // Adds one event for each hash of `events`, because block pools send one event per removed block.
  void AddEachHash(const BlockRemoved& events);

  // Ends the batch. REQUIRES: the number of added events is the constructor's `events`. Error: an
  // event could not be written; the message names the event, and `out` then has its old content.
  Status Finish(std::optional<int64_t> data_parallel_rank);

 private:
  template <typename EventType>
  bool IsEncodable(const EventType& event);
  template <typename EventType>
  void AddChecked(const EventType& event);

  const Layout& layout_;
  std::vector<uint8_t>& out_;
  const size_t start_;
  const size_t events_;
  size_t added_ = 0;
  Status status_;
  Writer writer_;
  // Scratch memory of AddEachHash.
  std::vector<uint8_t> before_hash_;
  std::vector<uint8_t> after_hash_;
};

}  // namespace kvcast::wire
