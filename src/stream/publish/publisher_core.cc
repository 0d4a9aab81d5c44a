// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/publisher_core.h"

#include <cmath>
#include <optional>
#include <utility>

#include "kvcast/core/redact.h"
#include "src/residency/mirror.h"
#include "src/wire/encodable.h"

namespace kvcast::stream {
namespace {

double Seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

// Decodes a payload. Error: an event of the payload cannot be decoded.
Status DecodeWhole(std::span<const uint8_t> payload, EventBatch& batch) {
  DecodeCounts counts;
  Status status = DecodeBatch(payload, WireLimits(), batch, counts);
  for (size_t i = 0; status.ok() && i < kRejectReasons; ++i) {
    if (counts.rejected[i] == 0) continue;
    status = Status(StatusCode::kMalformed, "the batch has an event that cannot be decoded: " +
                                                std::string(RejectName(static_cast<Reject>(i))));
  }
  return status;
}

}  // namespace

PublisherCore::PublisherCore(const PublisherConfig& config, std::function<int64_t()> now_us)
    : now_us_(std::move(now_us)),
      data_parallel_rank_(config.data_parallel_rank),
      ring_(config.ring_batches, config.ring_bytes, config.dialect),
      config_(config),
      speaks_until_us_(config.silent ? kSilentAtOnce : kNeverSilent),
      pending_(config.flush_ms),
      idle_since_us_(NowUs()) {}

void PublisherCore::KeepState(const Epoch& epoch) {
  state_ = std::make_unique<PublisherState>(epoch, ring_, config_.dialect, data_parallel_rank_,
                                            config_.answer_challenge, config_.repeats_are_refreshes,
                                            config_.max_blocks);
}

Status PublisherCore::KeepState(const Epoch& epoch, const PublishedState& resume) {
  ring_.StartAt(resume.status.next_seq);
  // NoteTime allows heartbeats before the first batch. Without heartbeats, a subscriber that
  // requests no status would not notice before the next batch that it lacks earlier batches.
  NoteTime(WallSeconds());
  KeepState(epoch);
  return state_->Restore(resume);
}

void PublisherCore::NoteTime(double ts) { clock_offset_s_ = ts - Seconds(NowUs()); }

Result<Seq> PublisherCore::PublishBatch(EventBatch&& batch) {
  if (config_.observe) config_.observe(&batch);
  return AppendBatch(std::move(batch));
}

Result<Seq> PublisherCore::AppendBatch(EventBatch&& batch) {
  if (!batch.data_parallel_rank) batch.data_parallel_rank = data_parallel_rank_;
  if (config_.hashes_only) Redact(batch);
  NoteTime(batch.ts);
  if (Status status = wire::CheckEncodable(batch); !status.ok()) {
    Refuse(&batch);
    return status;
  }
  return Seq(ring_.Append(std::move(batch)));
}

void PublisherCore::Refuse(const EventBatch* batch) {
  ++encode_errors_;
  std::optional<EventBatch> known;
  if (batch != nullptr && state_ != nullptr) {
    known = residency::MirroredPart(*batch);
    if (!wire::CheckEncodable(*known).ok()) known.reset();
  }
  ring_.AppendRefused(std::move(known));
}

Result<Seq> PublisherCore::PublishPending(EventBatch&& batch) {
  MutexLock lock(pending_mutex_);
  pending_.MoveTo(batch);
  Result<Seq> seq = PublishBatch(std::move(batch));
  has_pending_.store(false, std::memory_order_release);
  return seq;
}

void PublisherCore::Add(std::vector<Event> events, double ts) {
  MutexLock lock(pending_mutex_);
  pending_.Add(std::move(events), ts, NowUs() / 1000);
  has_pending_.store(!pending_.empty(), std::memory_order_release);
}

Status PublisherCore::Flush() {
  MutexLock lock(pending_mutex_);
  return FlushLocked();
}

Status PublisherCore::FlushLocked() {
  if (pending_.empty()) return Status();
  const Status status = PublishBatch(pending_.Take()).status();
  has_pending_.store(false, std::memory_order_release);
  return status;
}

Result<Seq> PublisherCore::PublishPayload(std::span<const uint8_t> payload,
                                          std::optional<double> ts) {
  const Result<Seq> seq = AppendPayload(payload, ts);
  // A caller with many payloads, for example of a log, may be faster than the thread that reads
  // them for the digests. If that thread lost batches, the digests would be lost for the epoch.
  if (state_ != nullptr && ring_.reader_is_late()) state_->CatchUp();
  return seq;
}

Result<Seq> PublisherCore::AppendPayload(std::span<const uint8_t> payload,
                                         std::optional<double> ts) {
  MutexLock lock(pending_mutex_);
  (void)FlushLocked();  // a refused batch is counted, and its number is a gap
  if (payload.empty()) {
    if (config_.observe) config_.observe(nullptr);
    Refuse(nullptr);
    return Status(StatusCode::kInvalidArgument,
                  "the payload is empty; an empty payload is the end marker of a replay");
  }
  if (config_.hashes_only || config_.observe) {
    const Status status = DecodeWhole(payload, decoded_);
    if (config_.observe) config_.observe(status.ok() ? &decoded_ : nullptr);
    if (config_.hashes_only) {
      if (status.ok()) return AppendBatch(std::move(decoded_));
      Refuse(nullptr);
      return status;
    }
  }
  if (ts) NoteTime(*ts);
  return Seq(
      ring_.Append(std::make_shared<const std::vector<uint8_t>>(payload.begin(), payload.end())));
}

void PublisherCore::FlushIfDue() {
  MutexLock lock(pending_mutex_);
  // A refused batch is counted, and its number is a gap.
  if (pending_.Due(NowUs() / 1000)) (void)FlushLocked();
}

void PublisherCore::PublishHeartbeat() {
  EventBatch batch;
  batch.ts = clock_offset_s_ + Seconds(NowUs());
  if (std::isnan(batch.ts)) return;
  batch.data_parallel_rank = data_parallel_rank_;
  ring_.Append(std::move(batch));
  ++heartbeats_;
}

void PublisherCore::Tick() {
  FlushIfDue();
  if (state_ != nullptr) state_->CatchUp();
  const int64_t now_us = NowUs();
  const uint64_t next_seq = ring_.next_seq();
  if (next_seq != std::exchange(ticked_seq_, next_seq)) idle_since_us_ = now_us;
  if (silent() || config_.heartbeat_ms == 0 ||
      now_us - idle_since_us_ < config_.heartbeat_ms * 1000)
    return;
  PublishHeartbeat();
  idle_since_us_ = now_us;
}

}  // namespace kvcast::stream
