// SPDX-License-Identifier: Apache-2.0
#include "python/src/sequence_state.h"

namespace kvcast::python {

SequenceState::Step SequenceState::Begin(std::optional<uint64_t> seq, uint64_t fingerprint) {
  if (!seq) numbered_ = false;
  // Without numbers, the first batch gets the number 1, because earlier batches may exist.
  seq_ = seq.value_or(began_ ? next_ : 1);
  if (began_ && seq_ < next_) return BeginOld(fingerprint);
  const bool lost = began_ && seq_ > next_;
  if (lost) {
    ++status_.gaps;
    ++status_.resets;
    status_.lost += seq_ - next_;
    status_.reason = SourceReason::kLostBatches;
  }
  if (lost || !began_) {
    missing_ = seq_ > 0;
    suspect_ = false;
    status_.first_seq = seq_;
    recent_.clear();
  }
  began_ = true;
  next_ = seq_ + 1;
  recent_.push_back(fingerprint);
  if (recent_.size() > kRecent) recent_.pop_front();
  if (lost || !numbered_) Refresh();
  return lost ? Step::kReset : Step::kApply;
}

SequenceState::Step SequenceState::BeginOld(uint64_t fingerprint) {
  const uint64_t back = next_ - seq_;
  if (back <= recent_.size() && recent_[recent_.size() - back] == fingerprint) {
    ++status_.duplicates;
    return Step::kDuplicate;
  }
  suspect_ = true;
  status_.reason = SourceReason::kUnproven;
  Refresh();
  return Step::kConflict;
}

bool SequenceState::End(BatchResult result) {
  ++status_.batches;
  status_.next_seq = next_;
  bool drop = false;
  switch (result) {
    case BatchResult::kApplied:
    case BatchResult::kNoEvents:
    case BatchResult::kImpossible:  // an engine may send removes without stores
      break;
    case BatchResult::kComplete:
      missing_ = false;
      break;
    case BatchResult::kEmptied:
      missing_ = false;
      if (status_.reason == SourceReason::kBadEvents) suspect_ = false;
      break;
    case BatchResult::kIncomplete:
      missing_ = true;
      status_.reason = SourceReason::kLostBatches;
      break;
    case BatchResult::kDoubtful:
      suspect_ = true;
      status_.reason = SourceReason::kBadEvents;
      break;
    case BatchResult::kRefuted:
      drop = true;
      status_.reason = SourceReason::kContradicted;
      break;
    case BatchResult::kUndecodable:
      drop = true;
      status_.reason = SourceReason::kUndecodable;
      break;
    case BatchResult::kTooLarge:
      drop = too_large_ = true;
      status_.reason = SourceReason::kTooLarge;
      break;
  }
  Refresh();
  return drop;
}

void SequenceState::Reset(ResetReason reason) {
  ++status_.resets;
  suspect_ = false;
  missing_ = true;
  status_.reason = reason == ResetReason::kLostBatches ? SourceReason::kLostBatches
                                                       : SourceReason::kContradicted;
  if (reason == ResetReason::kRestart) {
    status_.next_seq = next_ = 0;
    status_.reason = SourceReason::kJoining;
    recent_.clear();
    began_ = missing_ = too_large_ = false;
    numbered_ = true;
  }
  Refresh();
}

void SequenceState::Refresh() {
  status_.state = !began_                  ? SourceState::kConnecting
                  : too_large_             ? SourceState::kQuarantined
                  : suspect_ || !numbered_ ? SourceState::kSuspect
                  : missing_               ? SourceState::kCleared
                                           : SourceState::kSynced;
  const bool sure = status_.state == SourceState::kSynced || status_.state == SourceState::kCleared;
  status_.weight = sure ? 1 : status_.state == SourceState::kSuspect ? 0.5 : 0;
  if (status_.state == SourceState::kSynced) status_.reason = SourceReason::kNone;
}

}  // namespace kvcast::python
