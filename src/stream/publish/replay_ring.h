// ReplayRing: the latest published batches by sequence number, for replay and for sending.
//
// The ring is bounded by count and by bytes. If a bound is exceeded, the oldest batch is dropped;
// the newest batch always stays. The ring is also the send queue: one consumer takes the batches
// that are not sent yet. The ring counts the batches that it dropped before they were sent. A batch
// that is appended as events is encoded by the first thread that reads the ring, usually the
// sending thread. The producer encodes only if the queue of batches that are not encoded is full,
// or if it appends a batch that is encoded already.
//
// A sequence number may belong to a refused batch. A refused batch is not sent and not replayed, so
// readers of the stream see a gap that cannot be filled. Only the publisher's own reader (ReadOn)
// gets the batch, if its events are known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/wire/wire.h"
#include "src/base/mutex.h"
#include "src/stream/net/payload.h"
#include "src/stream/publish/encode_queue.h"

namespace kvcast::stream {

struct RingEntry {
  uint64_t seq = 0;
  Payload payload;
};

struct RingCounters {
  uint64_t batches = 0;  // next_seq(): used sequence numbers, also of refused batches
  uint64_t bytes = 0;    // encoded bytes of all batches except refused batches
  uint64_t unsent_dropped = 0;
};

// Thread-safe. A call waits at most for a short copy and for the encoding of the batches that were
// appended before the call.
class ReplayRing {
 public:
  // REQUIRES: max_batches > 0.
  ReplayRing(size_t max_batches, size_t max_bytes, Dialect dialect = kDefaultDialect);

  // The next batch gets the number `seq`. REQUIRES: no batch was appended before.
  void StartAt(uint64_t seq);
  // Appends the batch, and returns its sequence number. REQUIRES: CheckEncodable(batch).ok().
  uint64_t Append(EventBatch batch);
  uint64_t Append(Payload payload);
  // Uses the next sequence number for a refused batch. `known`: the events of the batch, for
  // ReadOn; nullopt: the events are not known, or cannot be encoded. REQUIRES:
  // CheckEncodable(*known).ok().
  uint64_t AppendRefused(std::optional<EventBatch> known);

  // Appends to `out` the held batches of [start, end), at most `limit`.
  void Read(uint64_t start, uint64_t end, size_t limit, std::vector<RingEntry>& out);

  // Appends to `out` up to `limit` unsent batches, and marks them as sent. True: more batches may
  // be unsent. `out` may then be unchanged, because refused batches are skipped. False: no batch is
  // unsent.
  bool TakeUnsent(size_t limit, std::vector<RingEntry>& out);
  // Batches that are appended after this call are kept for ReadOn if they leave the ring before
  // ReadOn has returned them. The kept batches have a byte limit of their own, which equals the
  // byte limit of the ring. If the kept batches exceed this limit, all of them are dropped.
  void KeepForReader();
  // True: the kept batches use more than half of their byte limit.
  bool reader_is_late() const {
    return left_unread_bytes_.load(std::memory_order_relaxed) > max_bytes_ / 2;
  }
  // Appends to `out` the next batches for the reader, at most `limit`, including refused batches.
  // Numbers whose batch is not known are skipped.
  void ReadOn(size_t limit, std::vector<RingEntry>& out);

  uint64_t next_seq() const;
  // The lowest held number; next_seq() if no batch is held.
  uint64_t first_held();
  RingCounters counters();

 private:
  struct Held {
    Payload payload;  // nullptr: the batch is not known
    bool refused = false;
    size_t bytes() const { return payload ? payload->size() : 0; }
  };

  uint64_t Append(NumberedBatch numbered);
  uint64_t first_seq() const KV_REQUIRES(mutex_) { return end_seq_ - held_.size(); }
  bool over_bounds() const KV_REQUIRES(mutex_);
  // Encodes the batches that were appended before the call. It locks encoding_ for one batch at a
  // time, because a producer may wait for this lock to encode a batch itself.
  void EncodeWaiting();
  uint64_t end_seq() const;
  // Encodes the oldest batch that is not encoded. False: all batches are encoded.
  bool EncodeOldest();
  bool EncodeOldestLocked() KV_REQUIRES(encoding_);
  void Hold(Held held) KV_REQUIRES(encoding_, mutex_);
  void DropOldest() KV_REQUIRES(encoding_, mutex_);
  void KeepUnread(uint64_t seq, const Payload& payload) KV_REQUIRES(mutex_);
  // Appends to `out` up to `limit` batches of [start, end). Refused batches are included only if
  // `with_refused` is true. Returns the number with which the caller must continue.
  uint64_t CopyFrom(uint64_t start, uint64_t end, size_t limit, bool with_refused,
                    std::vector<RingEntry>& out) const KV_REQUIRES(mutex_);

  const size_t max_batches_;
  const size_t max_bytes_;
  const Dialect dialect_;

  Mutex encoding_;  // locked before mutex_; keeps encoded batches in order
  size_t payload_size_hint_ KV_GUARDED_BY(encoding_) = 0;
  std::vector<Payload> dropped_ KV_GUARDED_BY(encoding_);  // freed while mutex_ is not held

  mutable Mutex mutex_;
  uint64_t next_seq_ KV_GUARDED_BY(mutex_) = 0;
  EncodeQueue waiting_ KV_GUARDED_BY(mutex_);    // newest number: next_seq_ - 1
  std::deque<Held> held_ KV_GUARDED_BY(mutex_);  // [first_seq, end_seq)
  uint64_t end_seq_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t next_unsent_ KV_GUARDED_BY(mutex_) = 0;
  size_t held_bytes_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t total_bytes_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t unsent_dropped_ KV_GUARDED_BY(mutex_) = 0;
  bool has_reader_ KV_GUARDED_BY(mutex_) = false;
  uint64_t next_unread_ KV_GUARDED_BY(mutex_) = 0;
  // Batches that left the ring before ReadOn returned them.
  std::deque<RingEntry> left_unread_ KV_GUARDED_BY(mutex_);
  std::atomic<size_t> left_unread_bytes_{0};  // written with mutex_ locked
};

}  // namespace kvcast::stream
