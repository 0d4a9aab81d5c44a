// SPDX-License-Identifier: Apache-2.0
#include "src/stream/relay/relay_sink.h"

#include <utility>

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
  return Status();
}

bool RelaySink::BeginEpoch() {
  publisher_.reset();
  const int64_t end_us = SteadyUs() + kBindPatienceUs;
  for (;;) {
    Status opened = Open();
    const bool taken = opened.code() == StatusCode::kUnavailable;
    if (!taken || SteadyUs() > end_us) {
      status_ = std::move(opened);
      return status_.ok();
    }
    const int64_t pause_end_us = SteadyUs() + kBindPauseUs;
    while (pause_.WaitUntil(mutex_, pause_end_us)) {
    }
  }
}

void RelaySink::PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) {
  (void)publisher_->PublishPayload(payload, ts);  // an empty payload is an error on purpose
}

void RelaySink::SetSilent(bool silent) { publisher_->SetSilent(silent); }

BatchResult RelaySink::Apply(Seq seq, std::span<const uint8_t> payload) {
  const MutexLock lock(mutex_);
  core_.Apply(seq, payload);
  return BatchResult::kApplied;
}

void RelaySink::Reset(ResetReason reason) {
  const MutexLock lock(mutex_);
  core_.Reset(reason);
}

void RelaySink::NoteState(SourceState state) {
  const MutexLock lock(mutex_);
  core_.NoteState(state);
}

StreamRelayCounters RelaySink::counters() const {
  const MutexLock lock(mutex_);
  return core_.counters();
}

Status RelaySink::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace kvcast::stream
