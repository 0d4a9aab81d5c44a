// RelayCore: the rules of a relay: which batches it publishes, when it begins an epoch, and when it
// is silent. It has no socket and no thread. RelaySink and the simulation use the same core.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/event.h"
#include "kvcast/stream/replica_sink.h"
#include "kvcast/stream/stream_relay.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast::stream {

// The publisher of a relay.
class RelayOutput {
 public:
  virtual ~RelayOutput() = default;
  // Ends the epoch, and begins an empty epoch, which is silent. False: there is no publisher any
  // more.
  virtual bool BeginEpoch() = 0;
  // See Publisher::PublishPayload. An empty payload uses a number that no replay returns.
  virtual void PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) = 0;
  // See Publisher::SetSilent.
  virtual void SetSilent(bool silent) = 0;
};

// Thread-compatible. The sink of the followed source must pass its calls of Apply and Reset on to
// this class.
class RelayCore {
 public:
  // `output` must outlive the core. The epoch of `output` must be silent, and must be empty unless
  // Resume is called.
  explicit RelayCore(RelayOutput& output) : output_(output) {}

  // The first epoch is not empty: it begins with the state of an ended relay.
  void Resume() { empty_ = false; }

  void Apply(Seq seq, std::span<const uint8_t> payload);
  void Reset(ResetReason reason);
  // Must be called when the state of the source has changed.
  void NoteState(SourceState state);

  // True: the state of the source is known to be that of the engine, perhaps without the latest
  // batches.
  bool known() const { return known_; }
  const StreamRelayCounters& counters() const { return counters_; }

 private:
  void BeginEpoch();
  void PublishLost();

  RelayOutput& output_;
  bool open_ = true;    // false: there is no publisher any more
  bool known_ = false;  // see known()
  bool empty_ = true;   // no sequence number of the epoch is used yet
  EventBatch batch_;    // keeps its memory between batches
  StreamRelayCounters counters_{.epochs = 1};
};

}  // namespace kvcast::stream
