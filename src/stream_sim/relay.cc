// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/relay.h"

#include <utility>

namespace kvcast::sim {

SimRelay::SimRelay(uint64_t seed, const Agenda& agenda, Follower& follower,
                   stream::ReplyChannel& channel, std::function<void()> on_epoch, Record& record)
    : agenda_(agenda),
      follower_(follower),
      channel_(channel),
      on_epoch_(std::move(on_epoch)),
      record_(record),
      random_(seed) {
  Restart();
}

void SimRelay::Restart() {
  config_ = {};
  config_.ring_batches = static_cast<size_t>(random_.Percent(60) ? 100000 : random_.Between(2, 64));
  config_.ring_bytes = SIZE_MAX;
  config_.heartbeat_ms = 1000;
  config_.silent = true;
  state_ = SourceState::kConnecting;
  OpenPublisher();
  core_.emplace(static_cast<stream::RelayOutput&>(*this));
}

void SimRelay::OpenPublisher() {
  scheduler_.reset();
  published_.BeginEpoch();
  publisher_.emplace(config_, [this] { return agenda_.now_ms() * 1000; });
  publisher_->KeepState({Mix(random_.Next()), published_.epoch()});
  credit_ = std::make_shared<bool>(false);
  scheduler_.emplace(stream::ReplayLimits(), publisher_->ring(), publisher_->state(), channel_,
                     [credit = credit_] { *credit = true; });
}

bool SimRelay::BeginEpoch() {
  OpenPublisher();
  ++record_.reached["epochs of relays"];
  on_epoch_();
  return true;
}

void SimRelay::PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) {
  const bool lost = payload.empty();
  if (lost) ++record_.reached["batches that a relay published as lost"];
  if (lost) {
    published_.NoteLost();
  } else {
    published_.NoteBatch(position(), ts.value_or(0));
  }
  const Result<Seq> seq = publisher_->PublishPayload(payload, ts);
  if (seq.ok() == lost) {
    record_.Fail("Ordered", lost ? "a relay published an empty payload as a batch"
                                 : "a relay could not publish a batch");
  }
  if (publisher_->ring().next_seq() != published_.next_seq())
    record_.Fail("Ordered", "the next sequence number of a relay differs from the record");
}

BatchResult SimRelay::Apply(Seq seq, std::span<const uint8_t> payload) {
  ReplicaSink& follower = follower_;
  follower.Apply(seq, payload);
  core_->Apply(seq, payload);
  return BatchResult::kApplied;
}

void SimRelay::Reset(ResetReason reason) {
  ReplicaSink& follower = follower_;
  follower.Reset(reason);
  core_->Reset(reason);
}

void SimRelay::NoteState(SourceState state) {
  if (state == std::exchange(state_, state)) return;
  core_->NoteState(state);
}

void SimRelay::Tick() {
  publisher_->Tick();
  while (published_.next_seq() < publisher_->ring().next_seq()) {
    published_.NoteHeartbeat();
    ++record_.reached["heartbeats of relays"];
  }
}

std::vector<stream::RingEntry> SimRelay::TakeUnsent() {
  std::vector<stream::RingEntry> entries;
  while (publisher_->ring().TakeUnsent(SIZE_MAX, entries)) {
  }
  return entries;
}

void SimRelay::Ask(const std::string& client, stream::Frame start) {
  if (publisher_->silent()) {
    ++record_.reached["requests that a silent relay dropped"];
    return;
  }
  scheduler_->AddRequest({reinterpret_cast<const uint8_t*>(client.data()), client.size()}, start);
}

int64_t SimRelay::Serve() {
  const int64_t now_us = agenda_.now_ms() * 1000;
  if (std::exchange(*credit_, false)) scheduler_->Resume();
  scheduler_->Serve(now_us);
  return scheduler_->WaitMs(now_us);
}

}  // namespace kvcast::sim
