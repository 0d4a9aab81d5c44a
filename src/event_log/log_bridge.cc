// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_bridge.h"

#include <utility>
#include <vector>

#include "src/residency/copies_of.h"
#include "src/residency/extension.h"

namespace kvcast::event_log {
namespace {

// Pause before the log is read again from its first message.
constexpr int64_t kRewindPauseMs = 500;

}  // namespace

LogBridge::LogBridge(LogBridgeConfig config, EventLog& log)
    : config_(std::move(config)), log_(log), replica_(*this), heard_ms_(config_.now_ms()) {}

bool LogBridge::Step(int64_t wait_ms) {
  now_ms_ = config_.now_ms();
  if (now_ms_ < resume_ms_) return false;
  std::vector<LogMessage> messages;
  const Result<uint64_t> pending = log_.Read(from_, wait_ms, messages);
  now_ms_ = config_.now_ms();
  if (!pending.ok()) {
    alive_ms_.reset();
    awaited_.reset();
    behind_since_ms_.reset();
    UpdateSilence();
    Note(BridgeState::kUnreachable, pending.status().message());
    return false;
  }
  for (LogMessage& message : messages) {
    from_ = message.position + 1;
    replica_.Apply(std::move(message));
  }
  const std::string error = std::exchange(begin_error_, {});
  if (replica_.lost() || !error.empty()) Rewind();
  ReadAnnouncement();
  CheckAwaited(*pending);
  UpdateSilence();
  const BridgeState state = relay_is_alive()   ? BridgeState::kFollowing
                            : replica_.valid() ? BridgeState::kSilent
                                               : BridgeState::kReading;
  Note(state, error);
  return true;
}

void LogBridge::ReadAnnouncement() {
  const int64_t previous_ms = std::exchange(heard_ms_, now_ms_);
  const std::optional<Announcement> latest = log_.LatestAnnouncement();
  if (!latest || std::exchange(heard_, latest->count) == latest->count) return;
  const std::optional<LogRecord> record = ParseRecord(latest->header);
  if (!record || record->kind != RecordKind::kStatus || !record->begun) return;
  if (record->index == 0) {
    // The relay does not know the state of the engine.
    alive_ms_.reset();
    awaited_.reset();
    behind_since_ms_.reset();
    return;
  }
  // Later announcements of the epoch are ignored until the awaited announcement is reached, or the
  // log is read again.
  if (awaited_ && awaited_->record.epoch == record->epoch) return;
  auto digests = residency::ParseStatus(latest->payload);
  if (!digests.ok()) return;
  // A new announcement may have arrived at any time since the previous call.
  awaited_ = Awaited{*record, std::move(digests).value(), previous_ms};
}

void LogBridge::CheckAwaited(uint64_t pending) {
  if (!awaited_) return;
  const bool reached = replica_.valid() && replica_.epoch() == awaited_->record.epoch &&
                       replica_.next() >= awaited_->record.next;
  if (!reached) {
    if (pending > 0) behind_since_ms_.reset();
    if (pending == 0 && !behind_since_ms_) behind_since_ms_ = now_ms_;
    if (behind_since_ms_ && now_ms_ - *behind_since_ms_ > kStuckMs) Rewind();
    return;
  }
  behind_since_ms_.reset();
  if (!Agrees()) {
    Rewind();
    const MutexLock lock(mutex_);
    ++status_.mismatches;
    return;
  }
  alive_ms_ = awaited_->arrived_ms;
  awaited_.reset();
}

bool LogBridge::relay_is_alive() const {
  return replica_.valid() && alive_ms_ && now_ms_ - *alive_ms_ < kAliveMs;
}

void LogBridge::UpdateSilence() {
  if (publisher_ == nullptr) return;
  if (!relay_is_alive()) return publisher_->SetSilent(true);
  publisher_->SpeakUntil(1000 * (*alive_ms_ + kAliveMs));
}

// False: the digests of the state differ from the announced digests.
bool LogBridge::Agrees() const {
  if (replica_.next() != awaited_->record.next || !awaited_->digests->has_digests) return true;
  const std::optional<PublisherStatus> status = publisher_->status();
  // If the state is too large, a rewind does not help: only the next snapshot of the log can have a
  // smaller state.
  if (publisher_->too_large()) return true;
  return status && status->has_digests && status->Totals() == awaited_->digests->Totals();
}

// The publisher stays, so a subscriber keeps its state until the bridge publishes another state.
void LogBridge::Rewind() {
  replica_.Restart();
  from_ = 1;
  resume_ms_ = now_ms_ + kRewindPauseMs;
  alive_ms_.reset();
  awaited_.reset();
  behind_since_ms_.reset();
  const MutexLock lock(mutex_);
  ++status_.rewinds;
}

bool LogBridge::Equals(const PublisherStatus& status) {
  if (publisher_ == nullptr || !status.has_digests) return false;
  const std::optional<PublisherStatus> own = publisher_->status();
  return own && own->has_digests && own->Totals() == status.Totals();
}

// The endpoints are free only after the previous publisher has ended.
bool LogBridge::Begin(RelayState state) {
  publisher_.reset();
  PublisherConfig config;
  config.endpoint = config_.endpoint;
  config.replay_endpoint = config_.replay_endpoint;
  config.ring_batches = config_.ring_batches;
  config.ring_bytes = config_.ring_bytes;
  config.repeats_are_refreshes = config_.repeats_are_refreshes;
  config.max_blocks = config_.max_blocks;
  config.now_us = [now_ms = config_.now_ms] { return 1000 * now_ms(); };
  config.heartbeat_ms = 0;  // the log has the heartbeats of the relay
  config.flush_ms = 0;
  config.replay_requests_per_s = config.replay_bytes_per_s = 0;
  config.silent = config.holds_while_silent = true;
  config.binds = true;
  if (!begun_) config.epoch = state.state.status.epoch;
  config.resume = std::make_shared<const PublishedState>(std::move(state.state));
  auto made = Publisher::Create(config);
  begin_error_ = made.status().message();
  if (!made.ok()) return false;
  publisher_ = std::move(made).value();
  begun_ = true;
  return true;
}

bool LogBridge::LacksState() const { return publisher_ && publisher_->too_large(); }

// Each block has at least one copy.
bool LogBridge::Fits(const PublisherStatus& status) const {
  return status.has_digests && residency::CopiesOf(status.Totals()) <= config_.max_blocks;
}

void LogBridge::Add(std::span<const uint8_t> payload, const std::optional<EngineMark>&) {
  (void)publisher_->PublishPayload(payload);  // an empty payload uses a sequence number
}

void LogBridge::Note(BridgeState state, const std::string& error) {
  const MutexLock lock(mutex_);
  status_.state = state;
  status_.error = error;
  status_.replica = replica_.counters();
}

BridgeStatus LogBridge::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace kvcast::event_log
