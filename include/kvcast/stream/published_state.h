// PublishedState: the state of a publisher at one sequence number, in a form that another publisher
// can continue. PublishedBatch: a batch that a publisher has published.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/residency/publisher_status.h"

namespace kvcast {

using PublishedPayload = std::shared_ptr<const std::vector<uint8_t>>;

struct PublishedState {
  // The status before batch status.next_seq.
  PublisherStatus status;
  // The blocks that the engine holds, as batches of stores without tokens. Empty if the status has
  // no digests.
  std::vector<PublishedPayload> parts;
};

struct PublishedBatch {
  Seq seq;
  PublishedPayload payload;
};

}  // namespace kvcast
