// PeerLoads: the latest load of each other router, and the sum of these loads. It has no sockets
// and no clock.
//
// Each message has the whole load of its router. So a lost message needs no repair: the next
// message replaces the load. A router that was silent for three periods does not count any more.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "router/service/load/load_gauge.h"

namespace kvcast::router {

// The other routers whose load counts.
struct PeerView {
  size_t routers = 0;
  // For the router that has been silent for the longest time: when its latest message arrived.
  // nullopt: no router counts.
  std::optional<int64_t> oldest_us;

  bool operator==(const PeerView&) const = default;
};

// Thread-compatible. All times are in microseconds of one monotonic clock.
class PeerLoads {
 public:
  static constexpr int64_t kSilentPeriods = 3;
  static constexpr size_t kMaxOrigins = 64;
  // Maximum number of workers in the latest loads of all origins together. A worker counts once for
  // each origin. This is the number of 32 routers that have load on 4,096 workers each. (4,096 is
  // the default of FleetLimits::workers.)
  static constexpr size_t kMaxWorkers = 32 * 4096;

  // `name` and `epoch`: of this router.
  PeerLoads(std::string name, uint64_t epoch) : name_(std::move(name)), epoch_(epoch) {}

  // Takes a message. Ignores messages of this router. Returns nullopt if the message was taken or
  // ignored. Otherwise: kOldGauge, kSameName or kTooMany; the loads do not change.
  std::optional<GaugeReject> Take(LoadGauge gauge, int64_t now_us);
  // Drops the routers that have been silent for three periods.
  void Expire(int64_t now_us);
  // When the next router is dropped, if no message arrives. nullopt: no router counts.
  std::optional<int64_t> expires_us() const;

  // Increases when a load changes.
  uint64_t version() const { return version_; }
  PeerView view() const;
  // The sums of the loads of all other routers, in the order of the workers' names.
  OriginLoad Sum() const;

 private:
  struct Origin {
    uint64_t epoch = 0;
    uint64_t seq = 0;
    int64_t heard_us = 0;       // time of the latest message
    int64_t expires_at_us = 0;  // the router is dropped at this time
    OriginLoad load;
  };
  size_t WorkersOfOthers(const std::string& origin) const;

  const std::string name_;
  const uint64_t epoch_;
  std::map<std::string, Origin> origins_;
  uint64_t version_ = 0;
};

}  // namespace kvcast::router
