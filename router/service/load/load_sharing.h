// LoadSharing: publishes the load in flight of this router to the other routers, and follows the
// loads of the other routers. Without LoadSharing, routers in front of the same workers see only
// their own requests. docs/several-routers.md describes the messages.
//
// The router publishes its whole load at least once per period. It publishes a change sooner, but
// at most ten messages per period. It reads the messages of other routers for at most a quarter of
// its period at a time, plus the time of one message. Then it checks whether it must publish its
// load.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/curve.h"
#include "router/service/load/load_gauge.h"
#include "router/service/load/load_peer.h"
#include "router/service/load/peer_loads.h"

namespace kvcast::router {

struct LoadSharingConfig {
  static constexpr size_t kMaxPeers = PeerLoads::kMaxOrigins;

  std::string endpoint;         // PUB endpoint to bind; empty: the load is not published
  std::vector<LoadPeer> peers;  // at most kMaxPeers; may contain this router
  int64_t period_ms = 100;
  std::string name;  // of this router, unique among the routers
  // Number of this run. Earlier runs with the same name must have smaller numbers.
  uint64_t epoch = 0;
  // Subscribers need the role kSubscribe. nullopt: no encryption, and every peer is accepted.
  std::optional<CurveServer> curve;
  std::optional<CurveKeyPair> curve_keys;  // for peers with a server key
  std::function<int64_t()> now_us;         // monotonic
};

// The exchange with the selector. LoadSharing calls the functions on its thread.
struct LoadExchange {
  std::function<OriginLoad()> own;  // workers in the order of their names
  std::function<void(const OriginLoad& sum)> set_others;
  std::function<void(const PeerView& view)> set_view;
};

struct LoadSharingCounters {
  uint64_t sent = 0;
  uint64_t unsent = 0;    // messages that were too large, see EncodeGauge
  uint64_t received = 0;  // including refused messages and messages of this router
  std::array<uint64_t, kGaugeRejects> rejected{};
  uint64_t flooding_peers = 0;  // connections that were ended because the peer sent too many bytes
  RefusedConnections refused;
  uint64_t access_list_failures = 0;  // see AccessList::failed_refreshes
};

// Thread-safe.
class LoadSharing {
 public:
  // Error: the endpoint cannot be bound, or no file descriptor is available.
  static Result<std::unique_ptr<LoadSharing>> Create(LoadSharingConfig config,
                                                     LoadExchange exchange);
  ~LoadSharing();

  // Must be called after the load of this router has changed. Never blocks.
  void NoteChange();
  // Ends the thread. May be called twice. NoteChange may be called after Stop.
  void Stop();
  const LoadSharingConfig& config() const;
  const std::string& endpoint() const;  // with the port that was bound; empty: none
  LoadSharingCounters counters() const;

 private:
  class Impl;
  explicit LoadSharing(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
