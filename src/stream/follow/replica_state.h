// ReplicaState: the contents of a source's copy of the publisher's state, whether the copy is
// suspect, and the remedy that was chosen for it.
//
//             joined  applied  incomplete
//   kUnjoined   no      no        no
//   kEmpty      yes     no        no
//   kCleared    yes     no        yes
//   kPartial    yes     yes       yes
//   kWhole      yes     yes       no
//
// Invariants: a suspect copy has applied batches. A copy that is suspect or is being replaced has
// no pending audit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "kvcast/stream/subscriber.h"
#include "src/base/check.h"
#include "src/residency/extension.h"

namespace kvcast::stream {

// Thread-compatible.
class ReplicaState {
 public:
  enum class Contents : uint8_t {
    kUnjoined,  // nothing was applied, and it is not known whether batches are missing
    kEmpty,     // nothing was applied since the last reset, and no batch is missing
    kCleared,   // nothing was applied since the last reset, and batches are missing
    kPartial,   // batches were applied, and other batches are missing
    kWhole,     // all batches of the epoch, or a snapshot
  };
  // While the remedy is not kNone, no batch is applied. The remedy ends when it has succeeded or
  // the copy was forgotten. Exception: a repair first applies the batches before the sequence
  // number of its answer.
  enum class Remedy : uint8_t {
    kNone,
    kReplaceAll,      // replace the copy by a snapshot
    kCompareBuckets,  // compare the digests of all buckets
    kReplaceBuckets,  // replace the buckets that differ
  };

  bool joined() const { return contents_ != Contents::kUnjoined; }
  // Data was applied since the last reset.
  bool applied() const { return contents_ == Contents::kPartial || contents_ == Contents::kWhole; }
  // Batches of this epoch are missing.
  bool incomplete() const {
    return contents_ == Contents::kCleared || contents_ == Contents::kPartial;
  }
  Contents contents() const { return contents_; }
  bool suspect() const { return suspect_; }
  Remedy remedy() const { return remedy_; }
  // True: the copy must be replaced, and the replacement has not ended.
  bool being_replaced() const { return remedy_ != Remedy::kNone; }
  uint64_t buckets_to_replace() const { return buckets_; }
  // The latest reason to suspect, to replace or to clear the copy.
  SourceReason reason() const { return reason_; }
  // The copy is compared with this status when the copy reaches the sequence number of the status.
  const std::optional<residency::PublisherStatus>& pending_audit() const { return audit_; }

  void Join() {
    if (contents_ == Contents::kUnjoined) contents_ = Contents::kEmpty;
  }
  // From this call on, it is not known whether batches are missing. REQUIRES: nothing was applied.
  void Unjoin() {
    KV_DCHECK(!applied());
    contents_ = Contents::kUnjoined;
  }
  // A batch was applied. True: it is the first batch since the last reset.
  bool NoteApplied() {
    if (applied()) return false;
    contents_ = incomplete() ? Contents::kPartial : Contents::kWhole;
    return true;
  }
  void NoteMissing() {
    Join();
    contents_ = applied() ? Contents::kPartial : Contents::kCleared;
  }
  void NoteNothingMissing() {
    Join();
    contents_ = applied() ? Contents::kWhole : Contents::kEmpty;
  }
  // No batch is missing, and the copy has no wrong data.
  void NoteNothingWrong() {
    NoteNothingMissing();
    suspect_ = false;
  }
  // The copy equals the publisher's state.
  void NoteReplaced() {
    contents_ = Contents::kWhole;
    Clear();
  }
  // The copy was read from a file.
  void Restore(bool complete) { contents_ = complete ? Contents::kWhole : Contents::kPartial; }
  // The copy was forgotten. True: the copy had applied batches.
  bool Forget() {
    const bool had = applied();
    contents_ = incomplete() ? Contents::kCleared : Contents::kEmpty;
    Clear();
    return had;
  }
  // Another epoch of the publisher begins.
  void BeginEpoch() {
    contents_ = Contents::kUnjoined;
    Clear();
  }

  void SetReason(SourceReason reason) { reason_ = reason; }
  void Suspect(SourceReason reason) {
    KV_DCHECK(applied());
    suspect_ = true;
    reason_ = reason;
    audit_.reset();
  }
  // REQUIRES: for kReplaceBuckets, being_replaced() is true.
  void SetRemedy(Remedy remedy, uint64_t buckets = 0) {
    remedy_ = remedy;
    buckets_ = buckets;
    audit_.reset();
  }
  void AuditLater(const residency::PublisherStatus& status) {
    KV_DCHECK(!suspect_ && !being_replaced());
    audit_ = status;
  }
  void DropAudit() { audit_.reset(); }
  std::optional<residency::PublisherStatus> TakeAudit() {
    return std::exchange(audit_, std::nullopt);
  }

 private:
  void Clear() {
    suspect_ = false;
    SetRemedy(Remedy::kNone);
  }

  Contents contents_ = Contents::kUnjoined;
  bool suspect_ = false;  // the copy lacks events, or a batch contradicts it
  Remedy remedy_ = Remedy::kNone;
  uint64_t buckets_ = 0;  // for kReplaceBuckets: see ReplicaSink::DifferingBuckets
  SourceReason reason_ = SourceReason::kNone;
  std::optional<residency::PublisherStatus> audit_;
};

}  // namespace kvcast::stream
