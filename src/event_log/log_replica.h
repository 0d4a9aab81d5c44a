// LogReplica: builds the state of the source from the records of its log.
//
// The replica begins with a complete snapshot, and goes on with the batches after it. It switches
// to another epoch at the end of the first snapshot of that epoch. If a batch is missing, the
// replica is lost: it takes no batch until Restart was called and the log was read again from its
// first message. The writer deletes messages only after a complete snapshot, so a replica that is
// lost because of a deletion finds this snapshot. If the same batch is missing after Restart, the
// replica is not lost again, because the log lacks this batch. It is then not valid until the end
// of the next complete snapshot that includes the batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/relay_history.h"
#include "src/event_log/bridge_status.h"
#include "src/event_log/event_log.h"
#include "src/event_log/log_record.h"

namespace kvcast::event_log {

// Holds the state that the replica builds.
class ReplicaTarget {
 public:
  virtual ~ReplicaTarget() = default;
  // True: the state equals the state of the status, according to the digests of both.
  virtual bool Equals(const PublisherStatus& status) = 0;
  // Replaces the state. False: the snapshot contradicts itself, or cannot be used.
  virtual bool Begin(RelayState state) = 0;
  // True: the target has no state, although Begin was called, because the state was too large. A
  // later snapshot may be smaller.
  virtual bool LacksState() const { return false; }
  // False: the state of this status may be too large.
  virtual bool Fits(const PublisherStatus&) const { return true; }
  // Adds the next batch. An empty payload: the next number belongs to no batch.
  virtual void Add(std::span<const uint8_t> payload, const std::optional<EngineMark>& mark) = 0;
};

// Thread-compatible.
class LogReplica {
 public:
  // `target` must outlive the replica.
  explicit LogReplica(ReplicaTarget& target) : target_(target) {}

  // Messages must be passed in the order of their positions.
  void Apply(LogMessage&& message);
  // After this call, the next message must be the first message of the log. May be called at any
  // time.
  void Restart();

  // The target has the state before batch next() of epoch().
  bool valid() const { return valid_; }
  // The log must be read again from its first message.
  bool lost() const { return lost_; }
  const Epoch& epoch() const { return epoch_; }
  uint64_t next() const { return next_; }
  const ReplicaCounters& counters() const { return counters_; }

 private:
  // A snapshot whose end was not read yet.
  struct Pending {
    LogRecord begin;
    std::vector<PublishedPayload> parts;
    std::vector<LogMessage> batches;  // that were read after `begin`
    bool replaces = false;            // the snapshot replaces the state of its own epoch
  };
  // The missing batch that made the replica lost.
  struct Gap {
    Epoch epoch;
    uint64_t seq = 0;
    uint64_t position = 0;  // of the message that showed the gap; 0: the replica was never lost
  };
  bool Join(const LogRecord& record, LogMessage& message);
  void Handle(const LogRecord& record, LogMessage&& message);
  void OnPart(const LogRecord& record, LogMessage&& message);
  void OnEnd(const LogRecord& record, const LogMessage& message);
  void OnBatch(const LogRecord& record, LogMessage&& message);
  void AddBatch(const LogRecord& record, const LogMessage& message);
  // `position`: of the message that shows the gap.
  void NoteGap(uint64_t position);
  // True: the log lacks a later batch than those of the state, and the snapshot includes this
  // batch.
  bool FillsGap(const LogRecord& begin) const;

  ReplicaTarget& target_;
  uint64_t position_ = 0;  // of the latest message
  uint64_t pieces_ = 0;    // number of read pieces of an incomplete record
  std::vector<uint8_t> partial_;
  bool valid_ = false;
  bool lost_ = false;
  Epoch epoch_;
  uint64_t next_ = 0;
  std::optional<EngineMark> mark_;  // of the latest batch of the engine in the state
  std::optional<Pending> pending_;
  Gap gap_;  // of the latest time that the replica was lost; Restart keeps it
  ReplicaCounters counters_;
};

}  // namespace kvcast::event_log
