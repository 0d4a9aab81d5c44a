// RelayHistory: the current epoch of a StreamRelay, for a reader in the same process that stores
// the epoch in a durable log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kvcast/stream/published_state.h"

namespace kvcast {

// The position of a relay's batch in the stream of the followed engine.
struct EngineMark {
  uint64_t next_seq = 0;           // the engine's first sequence number after the batch
  std::array<uint64_t, 2> hash{};  // of the engine's batch next_seq - 1; see BatchFingerprint
  friend bool operator==(const EngineMark&, const EngineMark&) = default;
};

struct RelayView {
  Epoch epoch;
  uint64_t next_seq = 0;  // number of the next batch of the epoch
  // True: the relay does not know whether its state is the state of the engine.
  bool silent = false;
};

struct RelayBatches {
  std::vector<PublishedBatch> batches;
  // Marks of the batches, in the same order. nullopt: the batch is not a batch of the engine (a
  // heartbeat), or the relay has dropped the mark.
  std::vector<std::optional<EngineMark>> marks;
  // All numbers of [start, end) that are not in `batches`, and are not below first_held, belong to
  // refused batches; see Publisher::Read.
  uint64_t end = 0;
  uint64_t first_held = 0;
};

struct RelayState {
  PublishedState state;
  // Mark of the latest batch of the engine below state.status.next_seq. nullopt: the relay has no
  // such mark.
  std::optional<EngineMark> mark;
};

// A state of the relay. Its parts are written in steps.
struct RelaySnapshot {
  PublishedSnapshot content;
  std::optional<EngineMark> mark;  // see RelayState
};

// The state of an ended relay. A new relay can go on with this state.
struct RelayRecovery {
  std::shared_ptr<const PublishedState> state;
  std::vector<PublishedPayload> batches;  // after the state; empty payload: a refused batch
  std::optional<EngineMark> mark;         // of the latest batch of the engine; nullopt: not known
};

// Thread-safe.
class RelayHistory {
 public:
  virtual ~RelayHistory() = default;
  // nullopt: the relay publishes nothing, because it has failed or is between two epochs.
  virtual std::optional<RelayView> view() = 0;
  // nullopt: the epoch has ended. While one of these calls runs, no epoch ends; the calls do not
  // block the batches of the epoch. `limit`: maximum number of batches, above 0. SnapshotOf takes
  // about 0.1 s for a million blocks. The snapshot stays valid after the end of the epoch.
  virtual std::optional<RelayBatches> Read(const Epoch& epoch, uint64_t start, size_t limit) = 0;
  virtual std::optional<PublisherStatus> StatusOf(const Epoch& epoch) = 0;
  virtual std::optional<RelaySnapshot> SnapshotOf(const Epoch& epoch) = 0;
  // The state with which the epoch began, if the relay goes on with the state of an ended relay.
  // Readers that have this state can go on with the batches after it. nullopt: the epoch has ended
  // or began without a state, or Read was called with a `start` above the next_seq of this state.
  virtual std::optional<RelayState> FirstStateOf(const Epoch& epoch) = 0;
};

}  // namespace kvcast
