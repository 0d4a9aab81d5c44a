// LogWriter: writes the epochs of a relay to a durable log. The writer keeps the latest two
// complete snapshots of the epoch, and deletes the messages before them. See log_threads.h.
//
// A batch counts as written when the log has acknowledged it. After each failure, the writer reads
// the end of the log, and goes on with the first batch that the log does not have. If the relay's
// ring does not hold this batch any more, the writer writes a snapshot instead.
//
// The writer makes the parts of a snapshot in short steps. Between these steps, it announces its
// status. It also writes the batches of the epoch, unless this is the first snapshot of the epoch.
//
// Only one relay may write to a log. A writer hears another writer when it gets an announcement of
// the other writer, or when the log refuses a message because the other writer has written. A
// writer writes only after it has heard no other writer for kClaimMs. If two writers write at the
// same time, the log refuses the messages of one of them, because the log checks the position of
// each message. The refused writer then waits again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/relay_history.h"
#include "src/base/mutex.h"
#include "src/event_log/event_log.h"
#include "src/event_log/log_record.h"

namespace kvcast::event_log {

enum class WriterState : uint8_t {
  kUnreachable,  // the log cannot be read or written; WriterStatus::error has the cause
  kWaiting,      // the wait of kClaimMs has not ended
  kStandby,      // another relay writes to the log
  kWriting,
};
inline constexpr size_t kWriterStates = 4;
std::string_view WriterStateName(WriterState state);

struct WriterStatus {
  WriterState state = WriterState::kUnreachable;
  std::string error;
  uint64_t batches = 0;         // written
  uint64_t snapshots = 0;       // written completely
  uint64_t overflows = 0;       // how often the ring had lost batches that were not written
  uint64_t claims_lost = 0;     // another relay wrote while this writer wrote
  uint64_t purge_failures = 0;  // failed deletions; the next snapshot deletes the messages too
};

struct LogWriterConfig {
  std::string source;   // for the ids of the messages
  uint64_t writer = 0;  // random; identifies this run of the relay
  // After this number of payload bytes of batches, a snapshot is written.
  uint64_t snapshot_bytes = 256u << 20;
  std::function<int64_t()> now_ms;  // monotonic
};

// The messages of one call of EventLog::Append. The payloads must outlive the group.
class MessageGroup {
 public:
  explicit MessageGroup(size_t max_payload) : max_payload_(max_payload) {}
  // Adds one message, or several if the payload is large. `partial`: the record of all messages
  // before the last one. `partial` describes the log without `record`.
  void Add(const std::string& id, const LogRecord& record, const LogRecord& partial,
           std::span<const uint8_t> payload);
  bool full() const;
  const std::vector<NewMessage>& messages() const { return messages_; }

 private:
  const size_t max_payload_;
  std::vector<NewMessage> messages_;
  size_t bytes_ = 0;
};

// Whether this writer may write: only while it holds the claim. Thread-compatible.
class WriterClaim {
 public:
  static constexpr int64_t kClaimMs = 3000;

  bool held() const { return held_; }
  // True: another writer was heard in the last kClaimMs.
  bool hears_other(int64_t now_ms) const { return other_ && now_ms < due_ms_; }
  // Gives up the claim, and begins a wait of kClaimMs. `other`: another writer was heard.
  void Wait(int64_t now_ms, bool other) {
    held_ = false;
    other_ = other;
    due_ms_ = now_ms + kClaimMs;
  }
  // Takes the claim if the wait has ended. `position`: the end of the log.
  void TakeIfDue(int64_t now_ms, uint64_t position) {
    if (held_ || now_ms < due_ms_) return;
    held_ = true;
    position_ = position;
  }
  // The end of the log when the claim was taken.
  uint64_t position() const { return position_; }

 private:
  bool held_ = false;
  bool other_ = false;
  int64_t due_ms_ = 0;
  uint64_t position_ = 0;
};

// One thread at a time may call Step. status() is thread-safe.
class LogWriter {
 public:
  static constexpr int64_t kAnnounceMs = 500;

  // `history` and `log` must outlive the writer.
  LogWriter(LogWriterConfig config, RelayHistory& history, EventLog& log);
  // Writes the next messages. True: more can be written at once. May block for some seconds.
  bool Step();
  WriterStatus status() const;

 private:
  struct Snapshot {
    RelaySnapshot made;
    uint64_t attempt = 0;
    size_t parts_written = 0;  // to the log
    uint64_t begin = 0;        // position of the kBegin record; 0: not written
  };
  bool Sync();
  void HearOthers();
  bool Write(const RelayView& view);
  bool BeginSnapshot();
  void MakeParts();
  bool WriteParts();
  void EndSnapshot();
  bool WriteBatches();
  uint64_t AddBatches(const RelayBatches& read, MessageGroup& group);
  void Announce();
  bool Store(const MessageGroup& group);
  LogRecord Record(RecordKind kind, uint64_t index = 0) const;
  std::string IdOf(const std::string& suffix) const;
  void SetState(WriterState state, const std::string& error = "");

  const LogWriterConfig config_;
  RelayHistory& history_;
  EventLog& log_;
  int64_t now_ms_ = 0;  // of the current Step
  WriterClaim claim_;
  uint64_t announcements_ = 0;  // Announcement::count at the latest HearOthers
  bool synced_ = false;         // true: the four members below describe the log
  uint64_t position_ = 0;       // of the last message
  Epoch epoch_;
  bool begun_ = false;
  uint64_t next_ = 0;
  uint64_t written_bytes_ = 0;  // of batches since the latest snapshot began
  uint64_t attempts_ = 0;       // snapshots that were begun
  uint64_t kept_from_ = 0;      // position of the latest complete snapshot
  std::optional<Snapshot> snapshot_;
  std::optional<PublisherStatus> pending_;  // to announce when all its batches are written
  int64_t announce_due_ms_ = 0;
  std::string error_;  // of the latest Append
  mutable Mutex mutex_;
  WriterStatus status_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::event_log
