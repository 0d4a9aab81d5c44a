// Observations: what the dashboard shows of the past: the last events, decisions and figures. All
// bounded; the oldest leave first. Nothing here is needed for an answer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/block_hash_value.h"
#include "kvcast/prefix_index.h"
#include "router/service/fleet.h"
#include "router/service/http_message.h"
#include "router/service/routing_desk.h"
#include "src/base/mutex.h"

namespace kvcast::router {

struct ServiceCore;

// Thread-safe. Writers hold a lock for as long as it takes to copy a few numbers.
class Observations {
 public:
  static constexpr size_t kEventsMax = 4096;
  static constexpr size_t kDecisionsMax = 64;
  static constexpr size_t kSamplesMax = 600;

  // Events of one kind and place in a row are one entry.
  void Note(const FleetWorker& worker, const AppliedBatch& applied);
  void Note(const RouteDecision& decision, double now);
  // Figures of the fleet as they are now; called once a second.
  void Sample(const ServiceCore& core);

  // GET /v1/events: {"events": [...], "next": n}. Filters of the query: worker, type, tier, group;
  // since: what is new from that "next" on; limit.
  HttpReply Events(const HttpRequest& request, const FleetList& fleet) const;
  // GET /v1/decisions?since=: {"decisions": [...], "next": n}
  HttpReply Decisions(const HttpRequest& request) const;
  // GET /v1/history?since=: {"samples": [...], "next": n}
  HttpReply History(const HttpRequest& request) const;

 private:
  enum class Type : uint8_t { kStored, kRemoved, kCleared };
  struct Seen {
    WorkerId worker;
    uint64_t seq = 0;
    double ts = 0;
    Type type = Type::kStored;
    Tier tier = Tier::kGpu;
    int64_t group = -1;  // -1: none
    uint64_t blocks = 0;
    uint64_t tokens = 0;
    std::optional<BlockHash> first;
  };
  struct Decided {
    double time = 0;
    RouteDecision decision;  // without the chains
  };
  static Seen Describe(const Event& event);

  mutable Mutex mutex_;
  std::deque<Seen> events_ KV_GUARDED_BY(mutex_);
  uint64_t events_seen_ KV_GUARDED_BY(mutex_) = 0;  // number of the next one
  std::deque<Decided> decisions_ KV_GUARDED_BY(mutex_);
  uint64_t decisions_seen_ KV_GUARDED_BY(mutex_) = 0;
  std::deque<nlohmann::json> samples_ KV_GUARDED_BY(mutex_);
  uint64_t samples_seen_ KV_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvcast::router
