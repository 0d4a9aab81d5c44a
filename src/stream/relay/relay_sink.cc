// SPDX-License-Identifier: Apache-2.0
#include "src/stream/relay/relay_sink.h"

#include <optional>
#include <utility>

#include "kvcast/wire/wire.h"
#include "src/base/clock.h"

namespace kvcast::stream {
namespace {

// A closed socket may keep its port for a moment.
constexpr int64_t kBindPatienceUs = 10'000'000;
constexpr int64_t kBindPauseUs = 10'000;

}  // namespace

Result<std::shared_ptr<RelaySink>> RelaySink::Create(const PublisherConfig& config) {
  std::shared_ptr<RelaySink> sink(new RelaySink(config));
  sink->config_.silent = true;
  const MutexLock lock(sink->mutex_);
  if (Status status = sink->Open(); !status.ok()) return status;
  sink->config_.endpoint = sink->publisher_->endpoint();
  sink->config_.replay_endpoint = sink->publisher_->replay_endpoint();
  return sink;
}

Status RelaySink::Open() {
  auto publisher = Publisher::Create(config_);
  if (!publisher.ok()) return publisher.status();
  publisher_ = std::move(publisher).value();
  empty_ = true;
  ++counters_.epochs;
  return Status();
}

// The new epoch is silent until the first batch or change of state, because a status of an empty
// epoch would say that the engine holds no blocks.
void RelaySink::BeginEpoch() {
  publisher_.reset();
  const int64_t end_us = SteadyUs() + kBindPatienceUs;
  for (;;) {
    Status opened = Open();
    const bool taken = opened.code() == StatusCode::kUnavailable;
    if (!taken || SteadyUs() > end_us) {
      status_ = std::move(opened);
      return;
    }
    const int64_t pause_end_us = SteadyUs() + kBindPauseUs;
    while (pause_.WaitUntil(mutex_, pause_end_us)) {
    }
  }
}

void RelaySink::PublishLost() {
  (void)publisher_->PublishPayload({});  // the error is the purpose of the call
  empty_ = false;
  ++counters_.incomplete;
}

BatchResult RelaySink::Apply(Seq seq, std::span<const uint8_t> payload) {
  const MutexLock lock(mutex_);
  ++counters_.batches;
  if (publisher_ == nullptr) return BatchResult::kApplied;
  if (empty_ && seq != Seq(0)) PublishLost();
  DecodeCounts counts;
  const bool decoded =
      DecodeBatch(payload, WireLimits(), {.token_ids = false}, batch_, counts).ok();
  (void)publisher_->PublishPayload(payload, decoded ? std::optional(batch_.ts) : std::nullopt);
  empty_ = false;
  publisher_->SetSilent(!known_);
  return BatchResult::kApplied;
}

void RelaySink::Reset(ResetReason reason) {
  const MutexLock lock(mutex_);
  if (publisher_ == nullptr) return;
  if (!empty_) BeginEpoch();
  if (publisher_ != nullptr && empty_ && reason != ResetReason::kRestart) PublishLost();
}

void RelaySink::NoteState(SourceState state) {
  const MutexLock lock(mutex_);
  known_ =
      state == SourceState::kSynced || state == SourceState::kCleared || state == SourceState::kGap;
  if (publisher_ == nullptr) return;
  if (empty_ && state == SourceState::kCleared) PublishLost();
  publisher_->SetSilent(!known_);
}

StreamRelayCounters RelaySink::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

Status RelaySink::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace kvcast::stream
