// PublishedState: the state of a publisher at one sequence number, in a form that another publisher
// can continue. PublishedSnapshot: such a state whose parts are written in steps. PublishedBatch: a
// batch that a publisher has published.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
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

// The state of a publisher at the time of Publisher::Snapshot. The caller writes the parts with
// Write, and can do other work between two steps. Thread-compatible; only one copy of a snapshot
// may be written. It may outlive the publisher.
struct PublishedSnapshot {
  PublishedState state;  // with the parts that are written
  // Does one step, and appends the parts that this step finished to `parts`. False: all parts are
  // written. Empty: all parts are written.
  std::function<bool(std::vector<PublishedPayload>& parts)> step = {};

  bool complete() const { return step == nullptr; }  // all parts are written
  // Does the next step. Most steps take milliseconds. False: all parts are written.
  bool Write() {
    if (step && !step(state.parts)) step = nullptr;
    return !complete();
  }
};

struct PublishedBatch {
  Seq seq;
  PublishedPayload payload;
};

}  // namespace kvcast
