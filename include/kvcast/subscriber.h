// Subscriber: follows the event streams of any number of publishers, closes gaps through replay,
// and says honestly when it could not.
//
// One thread owns all sockets and calls the sink. Per source the sink sees each batch of an epoch
// at most once and in sequence order; everything else is a Reset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/ids.h"
#include "kvcast/status.h"

namespace kvcast {

struct SourceConfig {
  WorkerId worker;
  std::string endpoint;         // where the publisher's PUB listens
  std::string replay_endpoint;  // its ROUTER; empty: gaps cannot be closed
  std::string topic;            // subscription prefix; empty: all
};

enum class SourceState : uint8_t {
  kConnecting,  // nothing received yet
  kReplaying,   // joining or closing a gap; live batches are held back
  kSynced,      // every batch since the epoch's first (or a clear) has been applied
  kDegraded,    // batches are known to be missing and cannot be had
};
std::string_view SourceStateName(SourceState state);

// Why the state learned so far must be forgotten.
enum class ResetReason : uint8_t {
  kRestart,      // the publisher began again at 0
  kLostBatches,  // a gap that replay could not fill
};
std::string_view ResetReasonName(ResetReason reason);

struct SourceStatus {
  SourceState state = SourceState::kConnecting;
  uint64_t next_seq = 0;  // first sequence number not applied yet
  uint64_t batches = 0;   // delivered to the sink
  uint64_t gaps = 0;
  uint64_t replays = 0;   // replay requests sent
  uint64_t replayed = 0;  // batches that came by replay
  uint64_t duplicates = 0;
  uint64_t resets = 0;
  uint64_t lost = 0;          // sequence numbers that never came
  uint64_t bad_messages = 0;  // wrong frame count or sequence frame
};

// Called on the subscriber's thread; must not block for long.
struct SubscriberSink {
  std::function<void(WorkerId, Seq, std::span<const uint8_t> payload)> on_batch;
  std::function<void(WorkerId, ResetReason)> on_reset;
};

struct SubscriberConfig {
  size_t hold_back_batches = 8192;  // live batches kept while a replay runs, per source
  size_t hold_back_bytes = 64u << 20;
  int64_t replay_timeout_ms = 2000;  // without a frame
  int recv_hwm = 100000;
};

class Subscriber {
 public:
  static Result<std::unique_ptr<Subscriber>> Create(const SubscriberConfig& config,
                                                    SubscriberSink sink);
  ~Subscriber();

  // Thread-safe. The source is followed from its first batch if replay can give it.
  Status Add(const SourceConfig& source);
  void Remove(WorkerId worker);
  // Thread-safe snapshot.
  SourceStatus status(WorkerId worker) const;

 private:
  class Impl;
  explicit Subscriber(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
