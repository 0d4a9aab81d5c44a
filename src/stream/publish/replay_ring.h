// ReplayRing: the last published batches by sequence number, for replay and for sending.
//
// Bounded by count and by bytes; the oldest batch goes first, the newest always stays. It is also
// the send queue: one consumer takes what has not been sent yet, and what left the ring before that
// is counted. A batch that comes as events is encoded by whoever reads the ring first, mostly the
// sending thread; its producer encodes only when more wait than the queue holds.
//
// A number may be that of a refused batch: it is neither sent nor replayed, so that readers of the
// stream see a gap that nothing fills. Only the publisher's own reader (ReadOn) gets it, if its
// events are known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  uint64_t batches = 0;  // ever appended, refused ones included: also the next sequence number
  uint64_t bytes = 0;    // of them, encoded, without refused ones
  uint64_t unsent_dropped = 0;
};

// Thread-safe. No call waits for more than a short copy and the encoding of what was appended
// before it.
class ReplayRing {
 public:
  // REQUIRES: max_batches > 0.
  ReplayRing(size_t max_batches, size_t max_bytes, Dialect dialect = kDefaultDialect);

  // Gives the batch the next sequence number. REQUIRES: CheckEncodable(batch).ok().
  uint64_t Append(EventBatch batch);
  uint64_t Append(Payload payload);
  // Spends the next sequence number. `known`: what the refused batch said, for ReadOn; nullopt: it
  // cannot be written. REQUIRES: CheckEncodable(*known).ok().
  uint64_t AppendRefused(std::optional<EventBatch> known);

  // Appends to `out` up to `limit` held batches from the first held one >= start on, below `end`.
  void Read(uint64_t start, uint64_t end, size_t limit, std::vector<RingEntry>& out);

  // Appends to `out` up to `limit` unsent batches and takes them as sent. False: there is none.
  bool TakeUnsent(size_t limit, std::vector<RingEntry>& out);
  // From the next batch on, what leaves the ring before ReadOn gave it is kept for it, up to the
  // ring's bytes again; beyond that, all of that is dropped.
  void KeepForReader();
  // Appends to `out` up to `limit` batches that come next for the reader, refused ones included.
  // Numbers whose batch is not known are left out.
  void ReadOn(size_t limit, std::vector<RingEntry>& out);

  uint64_t next_seq() const;
  // The oldest number that is held; next_seq() if none is.
  uint64_t first_held();
  RingCounters counters();

 private:
  struct Held {
    Payload payload;  // nullptr: not known
    bool refused = false;
    size_t bytes() const { return payload ? payload->size() : 0; }
  };

  uint64_t Append(NumberedBatch numbered);
  uint64_t first_seq() const KV_REQUIRES(mutex_) { return end_seq_ - held_.size(); }
  bool over_bounds() const KV_REQUIRES(mutex_);
  // Encodes what was appended so far, one by one: a producer may be waiting to do one itself.
  void EncodeWaiting();
  uint64_t end_seq() const;
  // False: none waited.
  bool EncodeOldest();
  bool EncodeOldestLocked() KV_REQUIRES(encoding_);
  void Hold(Held held) KV_REQUIRES(encoding_, mutex_);
  void DropOldest() KV_REQUIRES(encoding_, mutex_);
  void KeepUnread(uint64_t seq, const Payload& payload) KV_REQUIRES(mutex_);
  // Up to `limit` batches of [start, end), without refused ones unless `with_refused`. Returns the
  // number to go on with.
  uint64_t CopyFrom(uint64_t start, uint64_t end, size_t limit, bool with_refused,
                    std::vector<RingEntry>& out) const KV_REQUIRES(mutex_);

  const size_t max_batches_;
  const size_t max_bytes_;
  const Dialect dialect_;

  Mutex encoding_;  // before mutex_: keeps what is encoded in order
  size_t payload_size_hint_ KV_GUARDED_BY(encoding_) = 0;
  std::vector<Payload> dropped_ KV_GUARDED_BY(encoding_);  // to be freed without mutex_

  mutable Mutex mutex_;
  uint64_t next_seq_ KV_GUARDED_BY(mutex_) = 0;
  EncodeQueue waiting_ KV_GUARDED_BY(mutex_);    // up to next_seq
  std::deque<Held> held_ KV_GUARDED_BY(mutex_);  // [first_seq, end_seq)
  uint64_t end_seq_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t next_unsent_ KV_GUARDED_BY(mutex_) = 0;
  size_t held_bytes_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t total_bytes_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t unsent_dropped_ KV_GUARDED_BY(mutex_) = 0;
  bool has_reader_ KV_GUARDED_BY(mutex_) = false;
  uint64_t next_unread_ KV_GUARDED_BY(mutex_) = 0;
  std::deque<RingEntry> left_unread_ KV_GUARDED_BY(mutex_);  // they have left the ring
  size_t left_unread_bytes_ KV_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvcast::stream
