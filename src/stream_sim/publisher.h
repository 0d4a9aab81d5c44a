// SimPublisher: one publisher over its lives: engine, ring, the real answers to requests, and the
// oracle of each life. Legacy ones answer as vLLM's does; extended ones speak KVX1.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kvcast/wire/wire.h"
#include "src/stream/replay_responder.h"
#include "src/stream_sim/engine.h"
#include "src/stream_sim/oracle.h"
#include "src/stream_sim/random.h"

namespace kvcast::sim {

using stream::Frame;
using stream::Payload;
using stream::RingEntry;

// A batch's place in all that was ever published: its time stamp on the wire.
struct Tag {
  int publisher = 0;
  int life = 0;
  uint64_t seq = 0;
  friend bool operator==(const Tag&, const Tag&) = default;
};
double EncodeTag(const Tag& tag);
Tag DecodeTag(double ts);

class SimPublisher {
 public:
  SimPublisher(uint64_t seed, int number);

  // Publishes one step of the engine, a clear, or an empty batch.
  RingEntry PublishStep();
  RingEntry PublishClear();
  RingEntry PublishHeartbeat();
  // One step of the engine is refused: its number is spent, and no reader of the stream gets its
  // events. Some cannot be written for the mirror either.
  void Burn();
  // Begins a new life, on request with a ring that holds everything.
  void Restart(bool large_ring = false, bool same_kind = false);

  // One request being answered.
  struct Serving {
    stream::Answer answer;
  };
  Serving Begin(Frame start);
  // The next replies; nullopt as the last one, when only END is left.
  std::vector<RingEntry> Next(Serving& serving, size_t limit);
  Payload EndPayload(const Serving& serving);

  bool extended() const { return state_ != nullptr; }
  // Whether it can give snapshots in this life.
  bool tells_state() const { return tells_state_; }
  bool topic_in_replies() const { return topic_in_replies_; }
  int life() const { return static_cast<int>(oracles_.size()) - 1; }
  uint64_t next_seq() const { return oracles_.back().next_seq(); }
  // Above the last number that anybody can see.
  uint64_t visible_end() const { return visible_end_; }
  const Oracle& oracle(int life) const { return oracles_[static_cast<size_t>(life)]; }
  uint64_t overruns() const { return overruns_; }

 private:
  RingEntry Publish(EventBatch batch);

  const uint64_t seed_;
  const int number_;
  Random random_;
  bool topic_in_replies_ = true;
  Dialect dialect_ = kDefaultDialect;
  size_t ring_batches_ = 0;
  uint64_t visible_end_ = 0;
  uint64_t overruns_ = 0;
  std::unique_ptr<Engine> engine_;
  std::deque<Oracle> oracles_;  // by life
  // Extended.
  bool tells_state_ = false;
  std::unique_ptr<stream::ReplayRing> ring_;
  std::unique_ptr<stream::PublisherState> state_;
  std::unique_ptr<stream::ReplayResponder> responder_;
  // Legacy.
  std::deque<RingEntry> held_;
};

}  // namespace kvcast::sim
