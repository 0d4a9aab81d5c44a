// ReplicaSink: what keeps the state that the batches of one followed source define.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "kvcast/ids.h"
#include "kvcast/publisher_status.h"

namespace kvcast {

// What became of a batch.
enum class BatchResult : uint8_t {
  kApplied,
  kDoubtful,     // applied, but for events that could not be read
  kUndecodable,  // nothing of it could be read
  kImpossible,   // applied, but it cannot happen to the state that it was applied to
  kRefuted,      // applied, and proves that the state is wrong
  kComplete,     // applied, and proves that the state lacks nothing that was missed before
  kIncomplete,   // applied, and shows that the state lacks earlier batches or events
};

// Why the state learned so far must be forgotten.
enum class ResetReason : uint8_t {
  kRestart,      // the publisher began again at 0
  kLostBatches,  // a gap that could not be filled
  kDoubt,        // the state was found to be wrong, or may be
};
std::string_view ResetReasonName(ResetReason reason);

// Called on the subscriber's thread. No call may block for long or throw. Payloads are borrowed for
// the call.
class ReplicaSink {
 public:
  virtual ~ReplicaSink() = default;

  // Each batch of an epoch at most once, in sequence order.
  virtual BatchResult Apply(Seq seq, std::span<const uint8_t> payload) = 0;
  virtual void Reset(ResetReason reason) = 0;

  // True: the sink implements the five functions below. Publishers that speak KVX1 are then asked
  // for epochs, digests and snapshots. Must not change.
  virtual bool TakesSnapshots() const { return false; }
  // A hidden state is begun (one that is being built is dropped), filled with batches of stores,
  // and either takes the place of the state or is dropped.
  virtual void BeginSnapshot() {}
  // False: the payload cannot be used.
  virtual bool AddToSnapshot(std::span<const uint8_t> /*payload*/) { return false; }
  // False, and the hidden state is dropped: it is not what the status declares.
  virtual bool CommitSnapshot(const PublisherStatus& /*status*/) { return false; }
  virtual void DropSnapshot() {}
  // Compares with the state after status.next_seq batches, which may be a little while ago.
  virtual DigestVerdict Compare(const PublisherStatus& /*status*/) {
    return DigestVerdict::kUnknown;
  }

  // True: the sink implements the two functions below. Otherwise a state that differs is replaced
  // as a whole. Must not change.
  virtual bool Repairs() const { return false; }
  // Compares with the state now, which is the one after status.next_seq batches; every place of the
  // status has buckets. Bit i: one of the buckets 4i to 4i + 3 differs, in any place. 0: no
  // difference can be found.
  virtual uint64_t DifferingBuckets(const PublisherStatus& /*status*/) { return 0; }
  // As BeginSnapshot, but what is added, and then committed or dropped, takes the place of these
  // buckets alone, in all places. If the commit says false the state may have changed.
  virtual void BeginRepair(uint64_t /*buckets*/) {}
};

// A sink of two functions, for a reader that keeps no state to compare.
class BatchSink final : public ReplicaSink {
 public:
  using OnBatch = std::function<void(Seq, std::span<const uint8_t> payload)>;
  using OnReset = std::function<void(ResetReason)>;

  // Either may be empty.
  explicit BatchSink(OnBatch on_batch, OnReset on_reset = {})
      : on_batch_(std::move(on_batch)), on_reset_(std::move(on_reset)) {}
  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override {
    if (on_batch_) on_batch_(seq, payload);
    return BatchResult::kApplied;
  }
  void Reset(ResetReason reason) override {
    if (on_reset_) on_reset_(reason);
  }

 private:
  const OnBatch on_batch_;
  const OnReset on_reset_;
};

}  // namespace kvcast
