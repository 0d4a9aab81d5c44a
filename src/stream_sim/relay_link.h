// RelayLink: a relay, the router behind the relay, and the network between them. A live connection
// delivers messages in order, and a reconnection loses the messages in flight. A request goes to
// the epoch of the relay that runs when the request arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/stream/follow/request_turns.h"
#include "src/stream/follow/source_pump.h"
#include "src/stream/follow/source_transport.h"
#include "src/stream/publish/reply_channel.h"
#include "src/stream_sim/active_faults.h"
#include "src/stream_sim/agenda.h"
#include "src/stream_sim/live_queue.h"
#include "src/stream_sim/relay.h"
#include "src/stream_sim/relayed_router.h"

namespace kvcast::sim {

class RelayLink final : private stream::SourceTransport, private stream::ReplyChannel {
 public:
  // `follower` and `publisher` belong to the relay's source. `faults`: the faults of the link to
  // this source. The relay pauses when the follower pauses. All reference arguments must outlive
  // the link.
  RelayLink(uint64_t seed, Agenda& agenda, Follower& follower, const SimPublisher& publisher,
            ActiveFaults& faults, Record& record);

  // The sink of the relay's source.
  ReplicaSink& sink() { return relay_; }
  // Must be called after each call into the relay's source.
  void NoteState(SourceState state);
  // Causes a fault between the relay and the router at random, or no fault.
  void Disturb();
  void RestartRelay();
  // Must be called once per second.
  void Tick();
  void CheckConverged() { router_.CheckConverged(pump_->source(), agenda_.now_ms()); }

 private:
  struct ReplyMessage {
    stream::RingEntry entry;
    std::shared_ptr<void> charge;  // refunded when the router has read the reply
  };
  // The live connection.
  struct Connection {
    uint64_t number = 0;  // of the latest connection
    bool subscribed = false;
    bool established = false;
    bool watched = false;  // the router reads from the connection
    int64_t last_arrival_ms = 0;
  };
  // The latest request of the router.
  struct Request {
    uint64_t number = 0;
    bool open = false;
    bool reply_cut = false;
    int64_t last_reply_ms = 0;
    std::deque<ReplyMessage> replies;
  };
  // The message that the latest ReceiveLive or ReceiveReply returned.
  struct Received {
    stream::RingEntry entry;
    stream::SeqFrame seq{};
    std::array<stream::Frame, 4> frames;
  };
  // The epoch and the position of the relay at one call of Tick.
  struct Head {
    int64_t ms = 0;
    uint64_t epoch = 0;
    EnginePosition position;
  };

  bool paused() const { return faults_.Lasts(FaultKind::kPauseFollower); }
  void MakePump();
  void RestartRouter();
  void TickRelay();
  void Connect();
  void TryConnect(uint64_t connection);
  void Break();
  void BeginEpoch();
  void SendUnsent();
  void SendLive(const stream::RingEntry& entry);
  void Ask(uint64_t request, const std::vector<uint8_t>& start);
  void WakeServer(int64_t in_ms);
  void Serve();
  void Wake();
  void Work();

  bool OpenLive() override;
  void EndLive() override { connection_.watched = false; }
  std::optional<stream::LiveEvent> NextLiveEvent() override;
  std::optional<stream::Frames> ReceiveLive() override;
  void OpenRequest(stream::Frame start) override;
  void CloseRequest() override;
  std::optional<stream::Frames> ReceiveReply() override;
  bool TakeReplyCut() override { return std::exchange(request_.reply_cut, false); }
  bool Send(const std::string& client, uint64_t seq, stream::Payload payload,
            std::shared_ptr<void> charge) override;

  Agenda& agenda_;
  ActiveFaults& faults_;
  Record& record_;
  Random random_;
  const stream::PumpConfig pump_config_;
  SimRelay relay_;
  RelayedRouter router_;
  stream::RequestTurns turns_;
  std::deque<Head> heads_;

  Connection connection_;
  LiveQueue live_;
  int64_t relay_up_ms_ = 0;      // the endpoints of the relay are closed until this time
  int64_t drops_until_ms_ = -1;  // live messages are lost until this time
  Request request_;
  Received received_;

  bool woken_ = false;
  int64_t timer_due_ms_ = stream::kNever;
  int64_t server_due_ms_ = stream::kNever;
  std::optional<stream::SourcePump> pump_;
};

}  // namespace kvcast::sim
