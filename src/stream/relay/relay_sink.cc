// SPDX-License-Identifier: Apache-2.0
#include "src/stream/relay/relay_sink.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/clock.h"
#include "src/stream/follow/fingerprint.h"

namespace kvcast::stream {
namespace {

// A closed socket may keep its port for a moment.
constexpr int64_t kBindTimeoutUs = 10'000'000;
constexpr int64_t kBindPauseUs = 10'000;

}  // namespace

Result<std::shared_ptr<RelaySink>> RelaySink::Create(const PublisherConfig& config) {
  std::shared_ptr<RelaySink> sink(new RelaySink(config));
  sink->config_.silent = true;
  // BindsEndpoint may decide differently on the bound address.
  sink->config_.binds = config.binds.value_or(BindsEndpoint(config.endpoint));
  const MutexLock lock(sink->mutex_);
  if (Status opened = sink->Open(); !opened.ok()) return opened;
  sink->config_.endpoint = sink->publisher_->endpoint();
  sink->config_.replay_endpoint = sink->publisher_->replay_endpoint();
  return sink;
}

Result<std::shared_ptr<RelaySink>> RelaySink::Create(PublisherConfig config,
                                                     const RelayRecovery& recovery) {
  config.resume = recovery.state;
  auto made = Create(config);
  if (!made.ok()) return made;
  RelaySink& sink = **made;
  const MutexLock lock(sink.mutex_);
  sink.config_.resume.reset();
  sink.core_.Resume();
  for (const PublishedPayload& batch : recovery.batches) {
    (void)sink.publisher_->PublishPayload(*batch);  // a refused batch uses a number
  }
  const uint64_t next_seq = sink.publisher_->next_seq().value;
  if (recovery.mark && next_seq > 0) sink.NoteMark(next_seq - 1, *recovery.mark);
  if (auto state = sink.publisher_->state())
    sink.first_state_ = RelayState{std::move(*state), recovery.mark};
  return made;
}

Status RelaySink::Open() {
  auto publisher = Publisher::Create(config_);
  if (!publisher.ok()) return publisher.status();
  publisher_ = std::move(publisher).value();
  if (const auto published = publisher_->status()) epoch_ = published->epoch;
  marks_.clear();
  first_state_.reset();
  return {};
}

bool RelaySink::BeginEpoch() {
  ending_ = true;
  while (leases_ > 0) lease_ended_.Wait(mutex_);
  ending_ = false;
  publisher_.reset();
  const int64_t end_us = SteadyUs() + kBindTimeoutUs;
  for (;;) {
    Status opened = Open();
    const bool port_may_be_taken = opened.code() == StatusCode::kUnavailable;
    if (!port_may_be_taken || SteadyUs() > end_us) {
      status_ = std::move(opened);
      return status_.ok();
    }
    const int64_t pause_end_us = SteadyUs() + kBindPauseUs;
    while (pause_.WaitUntil(mutex_, pause_end_us)) {
    }
  }
}

void RelaySink::PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) {
  const auto published = publisher_->PublishPayload(payload, ts);
  if (published.ok()) NoteMark(published->value, {engine_next_, PayloadHash(payload)});
}

void RelaySink::SetSilent(bool silent) { publisher_->SetSilent(silent); }

BatchResult RelaySink::Apply(Seq seq, std::span<const uint8_t> payload) {
  const MutexLock lock(mutex_);
  engine_next_ = seq.value + 1;
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

void RelaySink::NoteMark(uint64_t seq, const EngineMark& mark) {
  marks_.push_back({seq, mark});
  if (marks_.size() > config_.ring_batches) marks_.pop_front();
}

// Lets a call use the publisher of one epoch without the lock, so that the batches of the epoch do
// not wait. The epoch does not end while a lease exists.
class RelaySink::Lease {
 public:
  Lease(RelaySink& sink, const Epoch& epoch) : sink_(sink) {
    const MutexLock lock(sink.mutex_);
    if (sink.ending_ || sink.publisher_ == nullptr || sink.epoch_ != epoch) return;
    ++sink.leases_;
    publisher_ = sink.publisher_.get();
  }
  ~Lease() {
    if (publisher_ == nullptr) return;
    const MutexLock lock(sink_.mutex_);
    --sink_.leases_;
    sink_.lease_ended_.NotifyAll();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Publisher* publisher() const { return publisher_; }  // nullptr: the epoch has ended

 private:
  RelaySink& sink_;
  Publisher* publisher_ = nullptr;
};

std::optional<RelayView> RelaySink::view() {
  const MutexLock lock(mutex_);
  if (publisher_ == nullptr) return std::nullopt;
  return RelayView{epoch_, publisher_->next_seq().value, !core_.known()};
}

std::optional<RelayBatches> RelaySink::Read(const Epoch& epoch, uint64_t start, size_t limit) {
  const Lease lease(*this, epoch);
  if (lease.publisher() == nullptr) return std::nullopt;
  RelayBatches read;
  read.end = std::max(start, lease.publisher()->next_seq().value);
  read.batches = lease.publisher()->Read(Seq(start), limit);
  const std::optional<PublisherStatus> status = lease.publisher()->status();
  if (!status) return std::nullopt;
  read.first_held = status->first_held;
  if (!read.batches.empty()) {
    const uint64_t after = read.batches.back().seq.value + 1;
    read.end = read.batches.size() == limit ? after : std::max(read.end, after);
  }
  const MutexLock lock(mutex_);
  if (first_state_ && start > first_state_->state.status.next_seq) first_state_.reset();
  for (const PublishedBatch& batch : read.batches) {
    const auto mark = std::ranges::lower_bound(marks_, batch.seq.value, {}, &Mark::seq);
    const bool known = mark != marks_.end() && mark->seq == batch.seq.value;
    read.marks.push_back(known ? std::optional(mark->mark) : std::nullopt);
  }
  return read;
}

std::optional<PublisherStatus> RelaySink::StatusOf(const Epoch& epoch) {
  const Lease lease(*this, epoch);
  return lease.publisher() == nullptr ? std::nullopt : lease.publisher()->status();
}

std::optional<RelaySnapshot> RelaySink::SnapshotOf(const Epoch& epoch) {
  const Lease lease(*this, epoch);
  if (lease.publisher() == nullptr) return std::nullopt;
  std::optional<PublishedSnapshot> content = lease.publisher()->Snapshot();
  if (!content) return std::nullopt;
  RelaySnapshot result{std::move(*content), std::nullopt};
  const uint64_t next_seq = result.content.state.status.next_seq;
  const MutexLock lock(mutex_);
  const auto after = std::ranges::lower_bound(marks_, next_seq, {}, &Mark::seq);
  if (after != marks_.begin()) result.mark = std::prev(after)->mark;
  return result;
}

std::optional<RelayState> RelaySink::FirstStateOf(const Epoch& epoch) {
  const MutexLock lock(mutex_);
  // Between two epochs, epoch_ and first_state_ are those of the ended epoch.
  return publisher_ != nullptr && epoch == epoch_ ? first_state_ : std::nullopt;
}

}  // namespace kvcast::stream
