// Observations: the recent events, decisions and samples that the dashboard shows. All lists are
// bounded; the oldest entries are dropped. No answer depends on these lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/ingest/fleet.h"
#include "router/service/route/request_router.h"
#include "src/base/mutex.h"
#include "src/http/http_server.h"

namespace kvcast::router {

struct ServiceCore;

// Thread-safe. Each of the three lists has its own lock. A reader holds the lock only while it
// copies the entries, so decisions and batches wait for a dashboard only for this time.
class Observations {
 public:
  static constexpr size_t kEventsMax = 4096;
  static constexpr size_t kDecisionsMax = 64;
  static constexpr size_t kCandidatesMax = 64;  // of a decision; the cheapest candidates are kept
  static constexpr size_t kSamplesMax = 600;

  // Consecutive events of one batch with the same type, tier and group become one entry.
  void Note(const FleetWorker& worker, const AppliedBatch& applied);
  void Note(const RouteDecision& decision, double now);
  // Records the current figures of the fleet. Called once per second.
  void Sample(const ServiceCore& core);

  // GET /v1/events: {"events": [...], "next": n}. Query parameters: worker, type, tier, group,
  // limit, since. If `since` is the "next" of an earlier reply, only later entries are returned.
  HttpReply Events(const HttpRequest& request, const FleetList& fleet) const;
  // GET /v1/decisions?since=: {"decisions": [...], "next": n}
  HttpReply Decisions(const HttpRequest& request) const;
  // GET /v1/history?since=: {"samples": [...], "next": n}
  HttpReply History(const HttpRequest& request) const;

 private:
  enum class Type : uint8_t { kStored, kRemoved, kCleared };
  struct EventEntry {
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
  struct Filter;
  struct DecisionEntry {
    double time = 0;
    RouteDecision decision;  // without QueryAnswer::prefixes
  };
  // The latest entries of a list. All entries are numbered from 0.
  template <typename T>
  struct Recent {
    mutable Mutex mutex;
    std::deque<T> entries KV_GUARDED_BY(mutex);
    uint64_t seen KV_GUARDED_BY(mutex) = 0;  // number of the next entry
  };
  template <typename T>
  static std::vector<T> Tail(const Recent<T>& recent, uint64_t since, uint64_t& next);
  static EventEntry Describe(const Event& event);
  std::vector<EventEntry> Select(const Filter& filter, uint64_t since, uint64_t limit,
                                 uint64_t& next) const;

  Recent<EventEntry> events_;
  Recent<std::shared_ptr<const DecisionEntry>> decisions_;
  Recent<std::shared_ptr<const nlohmann::json>> samples_;
};

}  // namespace kvcast::router
