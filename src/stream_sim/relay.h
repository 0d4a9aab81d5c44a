// SimRelay: a relay that follows one publisher in the simulation. It uses the RelayCore and the
// PublisherCore of the real relay. It also gives each batch to a Follower, which checks the source
// of the relay.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/stream/publish/publisher_core.h"
#include "src/stream/publish/replay_scheduler.h"
#include "src/stream/publish/reply_channel.h"
#include "src/stream/relay/relay_core.h"
#include "src/stream_sim/agenda.h"
#include "src/stream_sim/follower.h"
#include "src/stream_sim/random.h"
#include "src/stream_sim/relay_record.h"
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

class SimRelay final : public ReplicaSink, private stream::RelayOutput {
 public:
  // `follower` checks the batches and resets of the source. `channel` takes the replies to
  // requests. `on_epoch` is called after Reset has begun an epoch. It must end the connections to
  // the previous epoch. All reference arguments must outlive the relay.
  SimRelay(uint64_t seed, const Agenda& agenda, Follower& follower, stream::ReplyChannel& channel,
           std::function<void()> on_epoch, Record& record);

  // The calls of the source into its sink.
  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override;
  void Reset(ResetReason reason) override;
  // Must be called after each call into the source.
  void NoteState(SourceState state);
  // Simulates that the process of the relay ends and a new process starts.
  void Restart();

  // Does one tick of the heartbeat thread.
  void Tick();
  // Takes the unsent batches, as the sending thread does.
  std::vector<stream::RingEntry> TakeUnsent();
  // Receives a request, as the replay thread does. A silent relay drops the request.
  void Ask(const std::string& client, stream::Frame start);
  // Serves each client once. Returns the milliseconds until the next call is needed; -1: no call is
  // needed.
  int64_t Serve();
  // True: a paused client has credit again.
  bool has_credit() const { return *credit_; }

  // The batches that the relay has published.
  const RelayRecord& record() const { return published_; }
  // The state of the source, as the relay knows it.
  SourceState source_state() const { return state_; }
  EnginePosition position() const { return {follower_.life().value_or(-1), follower_.next_seq()}; }

 private:
  bool BeginEpoch() override;
  void PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) override;
  void SetSilent(bool silent) override { publisher_->SetSilent(silent); }
  void OpenPublisher();

  const Agenda& agenda_;
  Follower& follower_;
  stream::ReplyChannel& channel_;
  const std::function<void()> on_epoch_;
  Record& record_;
  Random random_;
  RelayRecord published_;
  PublisherConfig config_;  // Restart chooses it
  SourceState state_ = SourceState::kConnecting;
  // True: a paused client has credit again. The replies in flight share this flag and set it.
  std::shared_ptr<bool> credit_;
  std::optional<stream::PublisherCore> publisher_;
  std::optional<stream::ReplayScheduler> scheduler_;
  std::optional<stream::RelayCore> core_;
};

}  // namespace kvcast::sim
