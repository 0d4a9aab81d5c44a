// BatchEncoder: writes one batch event by event, so that a producer need not hold them all.
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
  // Appends to `out`, which must outlive the encoder. `events`: how many will be added.
  BatchEncoder(Dialect dialect, double ts, size_t events, std::vector<uint8_t>& out);

  // Nothing more is written once an event was one that no decoder would take back.
  void Add(const BlockStored& event);
  void Add(const BlockRemoved& event);
  void Add(const AllBlocksCleared& event);
  // One event for each hash of `events`, as block pools remove them.
  void AddEachHash(const BlockRemoved& events);

  // Ends the batch. Not ok: an event could not be written (the message names it), and `out` is as
  // it was. REQUIRES: as many events were added as announced.
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
  // Scratch of AddEachHash.
  std::vector<uint8_t> before_hash_;
  std::vector<uint8_t> after_hash_;
};

}  // namespace kvcast::wire
