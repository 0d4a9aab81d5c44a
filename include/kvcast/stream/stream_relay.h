// StreamRelay: follows one publisher, and publishes its batches again. The payloads do not change.
// The epoch, the sequence numbers, the ring for replays, the digests and the snapshots are those of
// the relay. Subscribers that join late therefore get the state of the engine, even if the engine's
// own publisher has a short ring or does not support KVX1.
//
// The relay starts a new epoch when the subscriber resets the source, for example after a restart
// of the engine. If earlier batches of the engine are missing, number 0 of the epoch is a batch
// that no replay returns. Subscribers of the relay then know that their state is not complete, as
// they would without the relay.
//
// While the relay does not know whether its state is the state of the engine, the relay is silent:
// it sends no heartbeats and answers no requests. Its subscribers then become kStale, as without
// the relay.
//
// From a publisher with KVX1, the relay requests only replays, and no snapshots.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kvcast/core/status.h"
#include "kvcast/stream/publisher.h"
#include "kvcast/stream/relay_history.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast {

struct StreamRelayConfig {
  SourceConfig source;  // `worker` and `resume` have no effect
  SubscriberConfig subscriber;
  // `replay_endpoint` must be set. `epoch`, `resume` and `data_parallel_rank` must not be set: the
  // batches keep their rank. With `hashes_only`, the dialect is kKvcast1, which shows no release of
  // the engine; `dialect` has no effect.
  PublisherConfig publisher;
  // Set: the relay goes on with this state, in a new epoch, if the followed publisher proves to be
  // the same run, and can replay the batches since the state. Otherwise the relay drops the state.
  // `state` and `mark` must be set.
  std::optional<RelayRecovery> recovery;
};

struct StreamRelayCounters {
  uint64_t batches = 0;     // of the followed publisher
  uint64_t epochs = 0;      // including the current epoch
  uint64_t incomplete = 0;  // epochs that began without the earlier batches of the engine
};

// Thread-safe.
class StreamRelay {
 public:
  // Errors: those of Publisher::Create, Subscriber::Create and Subscriber::Add. kInvalidArgument:
  // a member of `publisher` or `recovery` that must be set is not set, or a member that must not be
  // set is set.
  static Result<std::unique_ptr<StreamRelay>> Create(const StreamRelayConfig& config);
  ~StreamRelay();

  // The bound endpoints, with the actual ports. A new epoch has the same endpoints.
  const std::string& endpoint() const;
  const std::string& replay_endpoint() const;
  SourceStatus source() const;
  StreamRelayCounters counters() const;
  // For a durable log. Valid as long as the relay.
  RelayHistory& history() const;
  // Not ok: another program has taken an endpoint while an epoch ended. The relay publishes nothing
  // any more.
  Status status() const;

 private:
  class Impl;
  explicit StreamRelay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
