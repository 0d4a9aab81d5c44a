// SimPublisher: one publisher over its lives (see engine.h). It has an engine, the real publisher
// logic, and the record of the batches that each life must have published. Some publishers support
// KVX1 (see src/residency/extension.h); the other publishers answer like the publisher of vLLM.
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

// The publisher and the life that made a batch. The time stamp of the batch contains both numbers.
struct Origin {
  int publisher = 0;
  int life = 0;
  friend bool operator==(const Origin&, const Origin&) = default;
};
Origin OriginOf(double ts);

class SimPublisher final : private stream::ReplyChannel {
 public:
  // All reference arguments must outlive the publisher.
  SimPublisher(uint64_t seed, int number, const Agenda& agenda, stream::ReplyChannel& channel,
               Record& record);

  // Makes one step of the engine, as the engine's thread does. The events of the step are published
  // in a batch, or added for the next batch.
  void PublishStep();
  // Makes one step, publishes its events in a batch, and returns the sequence number.
  uint64_t PublishBatch();
  void PublishClear();
  // Makes one step whose batch is refused: the batch uses a sequence number, and no reader of the
  // stream gets its events. In some cases the events cannot be encoded for the publisher's state
  // either.
  void Burn();
  // Makes one tick of the heartbeat thread.
  void Tick();
  // Returns the unsent batches, as the sending thread takes them.
  std::vector<RingEntry> TakeUnsent();
  // Receives a request, as the replay thread does.
  void Ask(const std::string& client, Frame start);
  // Serves each client once. Returns the milliseconds until the next call is needed; -1: no call is
  // needed.
  int64_t Serve();
  // True: a paused client has credit again.
  bool has_credit() const { return *credit_; }

  // Starts a new life. `large_ring`: the ring of the new life holds all batches. `same_kind`: the
  // new life supports KVX1 if and only if the previous life did.
  void Restart(bool large_ring = false, bool same_kind = false);

  bool extended() const { return extended_; }
  // True: the publisher can give snapshots in this life.
  bool tells_state() const { return tells_state_; }
  bool answers_challenges() const { return extended_ && answers_challenges_; }
  bool topic_in_replies() const { return topic_in_replies_; }
  int life() const { return static_cast<int>(lives_.size()) - 1; }
  uint64_t next_seq() const { return lives_.back().next_seq(); }
  // One above the highest sequence number that readers of the stream can see.
  uint64_t visible_end() const { return lives_.back().visible_end(); }
  const Published& published(int life) const { return lives_[static_cast<size_t>(life)]; }
  const Oracle& oracle(int life) const { return published(life).oracle(); }
  uint64_t overruns() const { return overruns_; }

 private:
  // Events that the publisher got without a batch.
  struct Pending {
    std::vector<Event> events;
    double ts = 0;
    int64_t since_ms = 0;
  };

  // A replay request that is being answered.
  struct Replay {
    uint64_t next = 0;  // the first number that the answer has not passed
    uint64_t end = 0;   // the next sequence number when the request arrived
  };

  PublisherConfig DrawConfig(bool large_ring);
  stream::ReplayLimits DrawLimits();
  double Stamp(uint64_t stamp) const;
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
  void CheckSkipped(uint64_t begin, uint64_t end, const char* problem);
  bool Send(const std::string& client, uint64_t seq, Payload payload,
            std::shared_ptr<void> charge) override;

  const uint64_t seed_;
  const int number_;
  const Agenda& agenda_;
  stream::ReplyChannel& channel_;
  Record& record_;
  Random random_;
  std::deque<Published> lives_;

  // The data of the latest life.
  bool extended_ = false;
  bool topic_in_replies_ = true;
  bool tells_state_ = false;
  bool answers_challenges_ = false;
  PublisherConfig config_;
  uint64_t stamps_ = 0;
  uint64_t unsent_ = 0;  // the first number that TakeUnsent has not passed
  uint64_t overruns_ = 0;
  Pending pending_;
  std::map<std::string, Replay> replays_;  // by client
  std::optional<int64_t> quiet_since_ms_;  // time of the first tick since the latest number
  std::unique_ptr<Engine> engine_;
  // True: a paused client has credit again. The replies in flight share this flag and set it.
  std::shared_ptr<bool> credit_;
  std::unique_ptr<stream::PublisherCore> core_;
  std::unique_ptr<stream::ReplayScheduler> scheduler_;
};

}  // namespace kvcast::sim
