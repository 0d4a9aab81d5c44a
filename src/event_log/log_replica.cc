// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_replica.h"

#include <memory>
#include <utility>

#include "src/residency/extension.h"

namespace kvcast::event_log {

void LogReplica::Restart() {
  position_ = 0;
  pieces_ = 0;
  pending_.reset();
  valid_ = lost_ = false;
}

void LogReplica::Apply(LogMessage&& message) {
  if (lost_) return;
  const std::optional<LogRecord> record = ParseRecord(message.header);
  if (message.position != position_ + 1) pieces_ = 0;
  position_ = message.position;
  if (!record) {
    ++counters_.bad_records;
    return;
  }
  if (Join(*record, message)) Handle(*record, std::move(message));
}

// Joins the pieces of a record. False: the record is not complete. If a writer ends between two
// pieces, the next message has the piece 0.
bool LogReplica::Join(const LogRecord& record, LogMessage& message) {
  if (record.piece == 0) {
    pieces_ = 0;
    partial_.clear();
  }
  if (record.piece != pieces_) return false;
  if (record.piece == 0 && !record.more) return true;
  partial_.insert(partial_.end(), message.payload.begin(), message.payload.end());
  ++pieces_;
  if (record.more) return false;
  message.payload.swap(partial_);
  pieces_ = 0;
  return true;
}

void LogReplica::Handle(const LogRecord& record, LogMessage&& message) {
  switch (record.kind) {
    case RecordKind::kBegin:
      pending_.reset();
      // A valid replica applies the batches up to the snapshot. It needs the snapshot only if the
      // log lacks some of these batches, or if the target lacks its state.
      if (valid_ && record.epoch == epoch_ && (target_.LacksState() || FillsGap(record))) {
        pending_ = {record, {}, {}, true};
      } else if (!valid_ || record.epoch != epoch_ || !record.begun) {
        pending_ = {record, {}, {}};
      }
      return;
    case RecordKind::kPart:
      return OnPart(record, std::move(message));
    case RecordKind::kEnd:
      return OnEnd(record, message);
    case RecordKind::kBatch:
    case RecordKind::kRefused:
      return OnBatch(record, std::move(message));
    case RecordKind::kStatus:
      ++counters_.bad_records;
      return;
  }
}

void LogReplica::OnPart(const LogRecord& record, LogMessage&& message) {
  if (!pending_) return;
  if (record.epoch != pending_->begin.epoch || record.index != pending_->parts.size()) {
    pending_.reset();
    return;
  }
  pending_->parts.push_back(
      std::make_shared<const std::vector<uint8_t>>(std::move(message.payload)));
}

void LogReplica::OnEnd(const LogRecord& record, const LogMessage& message) {
  std::optional<Pending> pending = std::exchange(pending_, std::nullopt);
  if (!pending || record.epoch != pending->begin.epoch) return;
  if (record.index != pending->parts.size()) return;
  auto status = residency::ParseStatus(message.payload);
  if (!status.ok() || status->epoch != record.epoch || status->next_seq != pending->begin.index) {
    ++counters_.bad_records;
    return;
  }
  if (pending->replaces && !target_.Fits(*status)) return;
  const uint64_t next = status->next_seq;
  // Equal digests are not enough, because the states before and after a restart of the engine may
  // both be empty.
  const bool goes_on = record.epoch == epoch_ || (record.mark && record.mark == mark_);
  if (valid_ && !pending->replaces && goes_on && target_.Equals(*status)) {
    ++counters_.adoptions;
  } else {
    valid_ = target_.Begin({{std::move(*status), std::move(pending->parts)}, record.mark});
    ++(valid_ ? counters_.snapshots : counters_.bad_records);
    if (!valid_) return;
  }
  epoch_ = record.epoch;
  next_ = next;
  mark_ = record.mark;
  for (LogMessage& batch : pending->batches) {
    AddBatch(*ParseRecord(batch.header), batch);
  }
}

void LogReplica::OnBatch(const LogRecord& record, LogMessage&& message) {
  if (valid_ && record.epoch == epoch_) {
    AddBatch(record, message);
    if (!pending_ || !pending_->replaces) return;
  }
  if (pending_ && record.epoch == pending_->begin.epoch)
    pending_->batches.push_back(std::move(message));
}

void LogReplica::AddBatch(const LogRecord& record, const LogMessage& message) {
  const uint64_t seq = record.next - 1;
  if (!valid_ || seq < next_) return;
  if (seq > next_) {
    NoteGap(message.position);
    return;
  }
  target_.Add(message.payload, record.mark);
  if (record.mark) mark_ = record.mark;
  ++next_;
}

// If the replica was lost at this position or at a later one before, the log was read again since
// then. To read it once more does not help.
void LogReplica::NoteGap(uint64_t position) {
  ++counters_.gaps;
  valid_ = false;
  lost_ = position > gap_.position;
  if (lost_) gap_ = {epoch_, next_, position};
}

// A writer that is behind its relay may store a whole snapshot before the last batches that the
// snapshot includes.
bool LogReplica::FillsGap(const LogRecord& begin) const {
  return position_ < gap_.position && begin.epoch == gap_.epoch && next_ <= gap_.seq &&
         gap_.seq < begin.index;
}

}  // namespace kvcast::event_log
