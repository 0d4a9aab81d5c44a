// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_writer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "src/residency/extension.h"

namespace kvcast::event_log {
namespace {

// Limits of one call of EventLog::Append.
constexpr size_t kGroupMessages = 256;
constexpr size_t kGroupBytes = 4u << 20;
// For this time, a step makes parts of a snapshot.
constexpr int64_t kPartsMs = 20;

std::string HexOf(const Epoch& epoch) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(epoch.high),
                static_cast<unsigned long long>(epoch.low));
  return text;
}

}  // namespace

std::string_view WriterStateName(WriterState state) {
  switch (state) {
    case WriterState::kUnreachable:
      return "unreachable";
    case WriterState::kWaiting:
      return "waiting";
    case WriterState::kStandby:
      return "standby";
    case WriterState::kWriting:
      return "writing";
  }
  return "unknown";
}

void MessageGroup::Add(const std::string& id, const LogRecord& record, const LogRecord& partial,
                       std::span<const uint8_t> payload) {
  LogRecord before = partial;
  before.more = true;
  for (; payload.size() > max_payload_; ++before.piece) {
    messages_.push_back({id + '+' + std::to_string(before.piece), EncodeRecord(before),
                         payload.first(max_payload_)});
    bytes_ += max_payload_;
    payload = payload.subspan(max_payload_);
  }
  LogRecord last = record;
  last.piece = before.piece;
  messages_.push_back({id, EncodeRecord(last), payload});
  bytes_ += payload.size();
}

bool MessageGroup::full() const {
  return messages_.size() >= kGroupMessages || bytes_ >= kGroupBytes;
}

LogWriter::LogWriter(LogWriterConfig config, RelayHistory& history, EventLog& log)
    : config_(std::move(config)), history_(history), log_(log) {}

bool LogWriter::Step() {
  now_ms_ = config_.now_ms();
  const std::optional<RelayView> view = history_.view();
  if (!view || (!synced_ && !Sync())) return false;
  HearOthers();
  claim_.TakeIfDue(now_ms_, position_);
  if (!claim_.held()) {
    synced_ = false;  // another writer may write
    SetState(claim_.hears_other(now_ms_) ? WriterState::kStandby : WriterState::kWaiting);
    return false;
  }
  SetState(error_.empty() ? WriterState::kWriting : WriterState::kUnreachable, error_);
  if (epoch_ != view->epoch) {
    epoch_ = view->epoch;
    begun_ = false;
    next_ = 0;
    snapshot_.reset();
    pending_.reset();
  }
  const bool more = Write(*view);
  if (synced_) Announce();
  return more;
}

// The first Sync after kUnreachable begins the wait for other writers, because the announcements of
// other writers cannot arrive while the log is unreachable.
bool LogWriter::Sync() {
  const Result<LogEnd> end = log_.End();
  if (!end.ok()) {
    SetState(WriterState::kUnreachable, end.status().message());
    return false;
  }
  if (status().state == WriterState::kUnreachable && !claim_.held()) claim_.Wait(now_ms_, false);
  const std::optional<LogRecord> last =
      end->header ? ParseRecord(*end->header) : std::optional<LogRecord>();
  const bool ours = last && last->writer == config_.writer;
  if (claim_.held() && last && !ours && end->position > claim_.position()) {
    claim_.Wait(now_ms_, true);
    const MutexLock lock(mutex_);
    ++status_.claims_lost;
  }
  position_ = end->position;
  epoch_ = ours ? last->epoch : Epoch();
  begun_ = ours && last->begun;
  next_ = ours ? last->next : 0;
  snapshot_.reset();
  synced_ = true;
  return true;
}

void LogWriter::HearOthers() {
  const std::optional<Announcement> latest = log_.LatestAnnouncement();
  if (!latest || std::exchange(announcements_, latest->count) == latest->count) return;
  const std::optional<LogRecord> record = ParseRecord(latest->header);
  // If two writers have a claim, the log refuses the messages of one writer.
  if (record && record->writer != config_.writer && !claim_.held()) claim_.Wait(now_ms_, true);
}

bool LogWriter::Write(const RelayView& view) {
  if (!begun_ && !snapshot_) {
    // The relay does not know yet whether the state of the engine is empty.
    if (view.silent && view.next_seq == 0) return false;
    if (!BeginSnapshot()) return false;
  }
  if (begun_ && !snapshot_ && written_bytes_ >= config_.snapshot_bytes && !BeginSnapshot())
    return false;
  bool more = false;
  if (snapshot_) more = WriteParts();
  if (synced_ && begun_ && next_ < view.next_seq) more = WriteBatches() || more;
  return more && synced_;
}

bool LogWriter::BeginSnapshot() {
  std::optional<RelayState> state;
  if (next_ == 0) state = history_.FirstStateOf(epoch_);
  std::optional<RelaySnapshot> made =
      state ? RelaySnapshot{{std::move(state->state)}, state->mark} : history_.SnapshotOf(epoch_);
  if (!made) return false;
  written_bytes_ = 0;
  snapshot_ = Snapshot{.made = std::move(*made), .attempt = ++attempts_};
  return true;
}

// All parts of a large state take seconds. Batches and announcements must not wait for them.
void LogWriter::MakeParts() {
  const int64_t end_ms = config_.now_ms() + kPartsMs;
  while (snapshot_->made.content.Write() && config_.now_ms() < end_ms) {
  }
}

LogRecord LogWriter::Record(RecordKind kind, uint64_t index) const {
  LogRecord record;
  record.kind = kind;
  record.epoch = epoch_;
  record.writer = config_.writer;
  record.next = next_;
  record.begun = begun_;
  record.index = index;
  return record;
}

std::string LogWriter::IdOf(const std::string& suffix) const {
  return config_.source + ':' + HexOf(epoch_) + ':' + suffix;
}

bool LogWriter::WriteParts() {
  MakeParts();
  MessageGroup group(log_.max_payload());
  const PublishedState& state = snapshot_->made.content.state;
  const std::string id = IdOf("s" + std::to_string(snapshot_->attempt) + '.');
  if (snapshot_->begin == 0) {
    const LogRecord begin = Record(RecordKind::kBegin, state.status.next_seq);
    group.Add(id + "begin", begin, begin, {});
  }
  size_t written = snapshot_->parts_written;
  for (; written < state.parts.size() && !group.full(); ++written) {
    const LogRecord part = Record(RecordKind::kPart, written);
    group.Add(id + std::to_string(written), part, part, *state.parts[written]);
  }
  const bool ends = snapshot_->made.content.complete() && written == state.parts.size();
  const std::vector<uint8_t> status = residency::EncodeStatus(state.status);
  if (ends) {
    LogRecord end = Record(RecordKind::kEnd, written);
    if (!begun_) end.next = state.status.next_seq;
    end.begun = true;
    end.mark = snapshot_->made.mark;
    group.Add(id + "end", end, Record(RecordKind::kEnd, written), status);
  }
  if (group.messages().empty()) return true;  // the next part is not finished
  const uint64_t first = position_ + 1;
  if (!Store(group)) return false;
  if (snapshot_->begin == 0) snapshot_->begin = first;
  snapshot_->parts_written = written;
  if (ends) EndSnapshot();
  return true;
}

// Old messages are deleted only after a complete snapshot, because the snapshot replaces them. The
// previous snapshot and the messages after it stay for readers that are behind.
void LogWriter::EndSnapshot() {
  if (!begun_) {
    next_ = snapshot_->made.content.state.status.next_seq;
    kept_from_ = snapshot_->begin;
  }
  begun_ = true;
  const bool purged = kept_from_ <= 1 || log_.Purge(kept_from_).ok();
  kept_from_ = snapshot_->begin;
  snapshot_.reset();
  const MutexLock lock(mutex_);
  ++status_.snapshots;
  if (!purged) ++status_.purge_failures;
}

bool LogWriter::WriteBatches() {
  const std::optional<RelayBatches> read = history_.Read(epoch_, next_, kGroupMessages);
  if (!read) return false;
  if (read->first_held > next_) {
    begun_ = false;
    snapshot_.reset();
    const MutexLock lock(mutex_);
    ++status_.overflows;
    return true;
  }
  MessageGroup group(log_.max_payload());
  const uint64_t first = next_;
  const uint64_t end = AddBatches(*read, group);
  if (end == first) return false;
  next_ = first;
  if (!Store(group)) return false;
  next_ = end;
  for (const NewMessage& message : group.messages()) written_bytes_ += message.payload.size();
  const MutexLock lock(mutex_);
  status_.batches += end - first;
  return end < read->end || read->batches.size() == kGroupMessages;
}

// Returns the number after the last batch that was added. `next_` is the same number afterwards.
uint64_t LogWriter::AddBatches(const RelayBatches& read, MessageGroup& group) {
  const auto refuse_up_to = [&](uint64_t seq) {
    while (next_ < seq && !group.full()) {
      ++next_;
      const LogRecord refused = Record(RecordKind::kRefused);
      group.Add(IdOf(std::to_string(next_ - 1)), refused, refused, {});
    }
    return next_ == seq;
  };
  for (size_t i = 0; i < read.batches.size() && !group.full(); ++i) {
    const PublishedBatch& batch = read.batches[i];
    if (!refuse_up_to(batch.seq.value) || group.full()) return next_;
    const LogRecord before = Record(RecordKind::kBatch);
    ++next_;
    LogRecord record = Record(RecordKind::kBatch);
    record.mark = read.marks[i];
    std::string id = IdOf(std::to_string(batch.seq.value));
    // The log may have only some pieces of a large batch. With a new id, it stores all pieces.
    if (batch.payload->size() > log_.max_payload()) id += '.' + std::to_string(position_);
    group.Add(id, record, before, *batch.payload);
  }
  // The numbers between the last batch and the end belong to no batch.
  if (!group.full()) refuse_up_to(read.end);
  return next_;
}

// Reads the view again, because the relay may have become silent, or may have begun another epoch,
// while the log was written.
void LogWriter::Announce() {
  if (now_ms_ < announce_due_ms_) return;
  if (begun_ && !pending_) pending_ = history_.StatusOf(epoch_);
  const std::optional<RelayView> view = history_.view();
  if (!view || view->epoch != epoch_) return;
  announce_due_ms_ = now_ms_ + kAnnounceMs;
  LogRecord record = Record(RecordKind::kStatus, view->silent ? 0 : 1);
  std::vector<uint8_t> status;
  record.begun = begun_ && pending_ && pending_->next_seq <= next_;
  if (record.begun) {
    record.next = pending_->next_seq;
    status = residency::EncodeStatus(*pending_);
    pending_.reset();
  }
  (void)log_.Announce(EncodeRecord(record), status);
}

bool LogWriter::Store(const MessageGroup& group) {
  const Appended appended = log_.Append(position_, group.messages());
  error_ = appended.result == AppendResult::kUnavailable ? appended.error : "";
  if (appended.result == AppendResult::kStored) {
    position_ += group.messages().size();
    return true;
  }
  synced_ = false;
  snapshot_.reset();
  return false;
}

void LogWriter::SetState(WriterState state, const std::string& error) {
  const MutexLock lock(mutex_);
  status_.state = state;
  status_.error = error;
}

WriterStatus LogWriter::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace kvcast::event_log
