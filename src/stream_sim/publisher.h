// SimPublisher: one publisher over its lives: an engine, the publisher's own logic, and what each
// life must have published. Some speak KVX1; the others answer as vLLM's does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/wire/wire.h"
#include "src/stream/publish/publisher_core.h"
#include "src/stream/publish/replay_scheduler.h"
#include "src/stream/publish/reply_channel.h"
#include "src/stream_sim/agenda.h"
#include "src/stream_sim/engine.h"
#include "src/stream_sim/published.h"
#include "src/stream_sim/random.h"
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

using stream::Frame;
using stream::Payload;
using stream::RingEntry;

// Which publisher's life made a batch: a part of the batch's time stamp.
struct Origin {
  int publisher = 0;
  int life = 0;
  friend bool operator==(const Origin&, const Origin&) = default;
};
Origin OriginOf(double ts);

class SimPublisher final : private stream::ReplyChannel {
 public:
  // All must outlive it.
  SimPublisher(uint64_t seed, int number, const Agenda& agenda, stream::ReplyChannel& channel,
               Record& record);

  // The engine's thread. One step of the engine, in a batch or on the way to one.
  void PublishStep();
  // One step in a batch; returns its number.
  uint64_t PublishBatch();
  void PublishClear();
  // One step of the engine is refused: its number is spent, and no reader of the stream gets its
  // events. Some cannot be written for the publisher's state either.
  void Burn();
  // The thread of heartbeats.
  void Tick();
  // The sending thread.
  std::vector<RingEntry> TakeUnsent();
  // The replay thread.
  void Ask(const std::string& client, Frame start);
  // Serves each client once. Returns the milliseconds until it has something to do; -1: nothing.
  int64_t Serve();
  // A paused client has credit again.
  bool has_credit() const { return *credit_; }

  // Begins a new life, on request with a ring that holds everything.
  void Restart(bool large_ring = false, bool same_kind = false);

  bool extended() const { return extended_; }
  // Whether it can give snapshots in this life.
  bool tells_state() const { return tells_state_; }
  bool topic_in_replies() const { return topic_in_replies_; }
  int life() const { return static_cast<int>(lives_.size()) - 1; }
  uint64_t next_seq() const { return lives_.back().next_seq(); }
  // Above the last number that anybody can see.
  uint64_t visible_end() const { return lives_.back().visible_end(); }
  const Published& published(int life) const { return lives_[static_cast<size_t>(life)]; }
  const Oracle& oracle(int life) const { return published(life).oracle(); }
  uint64_t overruns() const { return overruns_; }

 private:
  // Events that the publisher was given without a batch.
  struct Pending {
    std::vector<Event> events;
    double ts = 0;
    int64_t since_ms = 0;
  };

  // A request for batches, being answered.
  struct Replay {
    uint64_t next = 0;  // the first number that the answer has not passed
    uint64_t end = 0;   // the next number when the request arrived
  };

  PublisherConfig DrawConfig(bool large_ring);
  stream::ReplayLimits DrawLimits();
  double NextStamp();
  EventBatch WithPending(EventBatch batch);
  void Add(std::vector<Event> events);
  uint64_t Publish(EventBatch batch);
  void PublishBytes(EventBatch batch);
  void Flush();
  void Number(Published::Kind kind, const EventBatch& batch);
  void NumberPending();
  void CheckNumbers();
  void CheckHeartbeat();
  // Checks that the publisher may omit the batches of [begin, end).
  void CheckSkipped(uint64_t begin, uint64_t end, const char* where);
  bool Send(const std::string& client, uint64_t seq, Payload payload,
            std::shared_ptr<void> charge) override;

  const uint64_t seed_;
  const int number_;
  const Agenda& agenda_;
  stream::ReplyChannel& channel_;
  Record& record_;
  Random random_;
  std::deque<Published> lives_;

  // Of the latest life.
  bool extended_ = false;
  bool topic_in_replies_ = true;
  bool tells_state_ = false;
  PublisherConfig config_;
  uint64_t stamps_ = 0;
  uint64_t unsent_ = 0;  // the first number that TakeUnsent has not passed
  uint64_t overruns_ = 0;
  Pending pending_;
  std::map<std::string, Replay> replays_;  // by client
  std::optional<int64_t> quiet_since_ms_;  // the first tick since the latest number
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<bool> credit_;  // replies that are under way hold it
  std::unique_ptr<stream::PublisherCore> core_;
  std::unique_ptr<stream::ReplayScheduler> scheduler_;
};

}  // namespace kvcast::sim
