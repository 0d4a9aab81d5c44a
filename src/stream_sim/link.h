// Link: the network between one publisher and its follower. Without faults, it behaves like ZeroMQ
// over TCP. Faults lose, change, repeat or delay messages, or end connections.
//
// The live connection delivers messages in order. It ends when the publisher ends, when a fault
// cuts it, or after three seconds of silence. Messages in flight are then lost. The socket
// reconnects by itself, and the new connection uses the same queue. A request goes to the publisher
// that runs when the request arrives. After the request is closed, its replies are dropped.
// SourcePump, the loop of the subscriber, reads from the link.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/stream/follow/request_turns.h"
#include "src/stream/follow/source_pump.h"
#include "src/stream/follow/source_transport.h"
#include "src/stream/publish/reply_channel.h"
#include "src/stream_sim/active_faults.h"
#include "src/stream_sim/agenda.h"
#include "src/stream_sim/fault.h"
#include "src/stream_sim/follower.h"
#include "src/stream_sim/legacy_reader.h"
#include "src/stream_sim/live_queue.h"
#include "src/stream_sim/publisher.h"
#include "src/stream_sim/relay_link.h"

namespace kvcast::sim {

class Link final : private stream::SourceTransport, private stream::ReplyChannel {
 public:
  // `relayed`: a relay follows the publisher, and a router follows the relay.
  Link(uint64_t seed, int number, const stream::SourceLimits& limits, bool can_replay, bool relayed,
       Agenda& agenda, stream::RequestTurns& turns, PrefixIndex& index, Record& record);

  SimPublisher& publisher() { return publisher_; }
  Follower& follower() { return follower_; }
  // nullptr: no relay.
  RelayLink* relay() { return relay_ ? &*relay_ : nullptr; }
  // The follower's clock.
  int64_t follower_ms() const { return agenda_.now_ms() + clock_offset_ms_; }

  void Start() { OpenLive(); }
  // Must be called after turns were given back, because this follower may have waited for a turn.
  void LookAtTurns();
  // `on_turns` is called when turns were given back.
  void set_on_turns(std::function<void()> on_turns) { on_turns_ = std::move(on_turns); }
  // PublishStep: one step of the publisher's engine. TickPublisher: one tick of its heartbeat
  // thread.
  void PublishStep();
  void TickPublisher();
  void Apply(const Fault& fault);
  // Saves the state of the follower, for the next kRestartFollower.
  void SaveFollower();
  // Starts a new life of the publisher. The first `batches` steps of its engine are made before
  // clients can connect.
  void Restart(int64_t batches, bool large_ring = false);
  bool publisher_paused() const { return faults_.Lasts(FaultKind::kPausePublisher); }
  // The end of the latest fault. While a fault is active, this time is in the future.
  int64_t healthy_since_ms() const { return faults_.trouble_until_ms(); }

 private:
  // The live connection.
  struct Connection {
    const bool bound;              // the publisher connects to the follower
    uint64_t number = 0;           // of the latest connection
    bool subscribed = false;       // the publisher has received the subscription
    bool established = false;      // kConnected of the connection was queued for the follower
    bool watched = false;          // the follower reads from the connection
    int64_t endpoint_free_ms = 0;  // bound: when the endpoint can be bound again
    int64_t last_arrival_ms = 0;
  };
  struct ReplyMessage {
    uint64_t request = 0;
    RingEntry entry;
    std::shared_ptr<void> charge;  // refunded when the follower has read the reply
  };
  // The latest request of the follower.
  struct Request {
    uint64_t number = 0;
    bool open = false;
    bool asks_snapshot = false;
    int64_t replies_sent = 0;
    int64_t last_reply_ms = 0;
    std::deque<ReplyMessage> replies;
    bool reply_cut = false;
  };
  // The message that the latest ReceiveLive or ReceiveReply returned.
  struct Received {
    RingEntry entry;
    stream::SeqFrame seq{};
    std::array<Frame, 4> frames;
  };

  bool Occurs(FaultKind kind) { return random_.Percent(faults_.Amount(kind)); }
  void MakePump();
  void RestartFollower();
  void RestartSilently(int64_t amount);
  void ApplyToPublisher(const Fault& fault);
  void ApplyToFollower(const Fault& fault);
  // True: a fault is active, or was active in the last second.
  bool in_trouble() const { return agenda_.now_ms() < faults_.trouble_until_ms() + 1000; }
  int64_t Latency() { return random_.Between(0, 3); }
  int64_t AfterPartition(int64_t ms) const;

  bool OpenLive() override;
  void EndLive() override;
  std::optional<stream::LiveEvent> NextLiveEvent() override;
  std::optional<stream::Frames> ReceiveLive() override;
  void OpenRequest(Frame start) override;
  void CloseRequest() override;
  std::optional<stream::Frames> ReceiveReply() override;
  bool TakeReplyCut() override { return std::exchange(request_.reply_cut, false); }

  // link_live.cc: the live connection.
  void Connect();
  void TryConnect(uint64_t connection);
  void Establish(uint64_t connection);
  void VisitByStranger(uint64_t connection);
  void Break();
  // No message passes for `duration_ms`. If this time is longer than the heartbeat timeout, the
  // connection ends.
  void BreakIfSilentFor(int64_t duration_ms);
  void SendUnsent();
  void SendLive(const RingEntry& entry);
  void Arrive(uint64_t connection, const RingEntry& message);

  // link_replies.cc: requests and their replies.
  void BreakReplies();
  void AskSnapshot();
  void Ask(uint64_t request, const std::vector<uint8_t>& start);
  void WakeServer(int64_t in_ms);
  void WakeServerForCredit();
  void Serve();
  bool Send(const std::string& client, uint64_t seq, Payload payload,
            std::shared_ptr<void> charge) override;
  bool SurvivesReply(uint64_t seq);
  void SendReply(const ReplyMessage& reply);

  // Schedules the next call of Work.
  void Wake();
  void Work();
  void CheckPump();
  void NoteStateForRelay();
  void CheckNothingIsLeft();
  void ScheduleTimer();

  Agenda& agenda_;
  Record& record_;
  std::function<void()> on_turns_;
  Random random_;
  SimPublisher publisher_;
  LegacyReader reader_;
  ActiveFaults faults_;
  int64_t publisher_up_ms_ = 0;  // no client can connect before this time
  int64_t clock_offset_ms_ = 0;

  const bool has_lanes_;  // see SubscriberConfig::slow_threads
  Connection connection_;
  LiveQueue live_;
  std::optional<uint64_t> given_;  // the live batch that the pump handles now

  Request request_;
  int64_t server_due_ms_ = stream::kNever;
  std::set<std::pair<int, uint64_t>> oversize_;  // kOversize batches: (life, sequence number)
  Received received_;

  bool woken_ = false;
  int64_t timer_due_ms_ = stream::kNever;
  Follower follower_;
  const stream::PumpConfig pump_config_;
  stream::RequestTurns& turns_;
  std::optional<RelayLink> relay_;
  std::optional<stream::SourcePump> pump_;
  std::optional<Follower::Saved> saved_;
};

}  // namespace kvcast::sim
