// SPDX-License-Identifier: Apache-2.0
#include "router/service/observations.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <variant>

#include "kvcast/tier.h"
#include "router/service/json_fields.h"
#include "router/service/service_core.h"
#include "router/service/state_json.h"

namespace kvcast::router {
namespace {

constexpr std::array kTypeNames = {"stored", "removed", "cleared"};
constexpr uint64_t kEventsPerReply = 500;

// Of the query; `otherwise` if it is not given. nullopt: no number.
std::optional<uint64_t> NumberIn(const HttpRequest& request, const char* name, uint64_t otherwise) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return otherwise;
  uint64_t number = 0;
  const char* const end = it->second.data() + it->second.size();
  const auto [stop, error] = std::from_chars(it->second.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

bool Matches(const HttpRequest& request, const char* name, std::string_view value) {
  const auto it = request.query.find(name);
  return it == request.query.end() || it->second.empty() || it->second == value;
}

Json HashJson(const BlockHash& hash) {
  if (!hash.is_bytes()) return std::to_string(hash.integer());
  std::string hex;
  for (const uint8_t byte : hash.bytes()) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// The last of `items` from number `since` on.
template <typename T>
std::vector<T> Tail(const std::deque<T>& items, uint64_t seen, uint64_t since) {
  const uint64_t first = seen - items.size();
  // A number from the future is of an earlier life of this process.
  if (since > seen) since = first;
  const uint64_t from = std::max(first, since);
  return {items.begin() + static_cast<std::ptrdiff_t>(from - first), items.end()};
}

}  // namespace

Observations::Seen Observations::Describe(const Event& event) {
  Seen seen;
  if (const auto* stored = std::get_if<BlockStored>(&event)) {
    seen.tier = TierOf(stored->medium);
    seen.group = stored->group_idx.value_or(-1);
    seen.blocks = stored->block_hashes.size();
    seen.tokens = stored->token_ids ? stored->token_ids->size() : 0;
    if (!stored->block_hashes.empty()) seen.first = stored->block_hashes[0];
  } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    seen.type = Type::kRemoved;
    seen.tier = TierOf(removed->medium);
    seen.group = removed->group_idx.value_or(-1);
    seen.blocks = removed->block_hashes.size();
    if (!removed->block_hashes.empty()) seen.first = removed->block_hashes[0];
  } else {
    seen.type = Type::kCleared;
    seen.tier = TierOf(std::get<AllBlocksCleared>(event).medium);
  }
  return seen;
}

void Observations::Note(const FleetWorker& worker, const AppliedBatch& applied) {
  const MutexLock lock(mutex_);
  bool fresh = true;
  for (const Event& event : applied.batch.events) {
    Seen seen = Describe(event);
    if (!fresh) {
      Seen& last = events_.back();
      if (last.type == seen.type && last.tier == seen.tier && last.group == seen.group) {
        last.blocks += seen.blocks;
        last.tokens += seen.tokens;
        continue;
      }
    }
    fresh = false;
    seen.worker = worker.id;
    seen.seq = applied.seq.value;
    seen.ts = applied.batch.ts;
    events_.push_back(std::move(seen));
    ++events_seen_;
    if (events_.size() > kEventsMax) events_.pop_front();
  }
}

void Observations::Note(const RouteDecision& decision, double now) {
  Decided decided{now, decision};
  for (RouteCandidate& candidate : decided.decision.candidates) candidate.answer.chain = nullptr;
  const MutexLock lock(mutex_);
  ++decisions_seen_;
  decisions_.push_back(std::move(decided));
  if (decisions_.size() > kDecisionsMax) decisions_.pop_front();
}

void Observations::Sample(const ServiceCore& core) {
  std::map<std::string, int64_t> held;      // "GPU sliding_window"
  std::map<std::string, uint64_t> removed;  // by kind, on the GPU
  uint64_t batches = 0;
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    const std::vector<GroupSpec> specs = core.index.Groups(worker->id);
    const std::vector<GroupTally> tallies = worker->source->group_tallies();
    for (size_t group = 0; group < tallies.size(); ++group) {
      const SpecKind kind = group < specs.size() ? specs[group].kind : SpecKind::kUnknown;
      const std::string name(SpecKindName(kind));
      for (int tier = 0; tier < kTiers; ++tier) {
        const GroupTally::InTier& tally = tallies[group].tiers[static_cast<size_t>(tier)];
        if (tally.stored == 0) continue;
        held[std::string(TierName(static_cast<Tier>(tier))) + " " + name] += tally.held;
      }
      removed[name] += tallies[group].tiers[static_cast<size_t>(Tier::kGpu)].removed;
    }
    batches += core.fleet->stream(worker->id).batches;
  }
  const RoutingCounters routing = core.desk->counters();
  Json partial = Json::object();
  for (const auto& [group, count] : routing.partial_by_group) {
    partial[group < 0 ? "none" : std::to_string(group)] = count;
  }
  Json sample = {{"time", core.now()},
                 {"held", held},
                 {"removed", removed},
                 {"batches", batches},
                 {"queries", core.answered.load()},
                 {"full", routing.hits[static_cast<size_t>(HitKind::kFull)]},
                 {"miss", routing.hits[static_cast<size_t>(HitKind::kMiss)]},
                 {"partial_by_group", std::move(partial)}};
  const MutexLock lock(mutex_);
  sample["number"] = samples_seen_++;
  samples_.push_back(std::move(sample));
  if (samples_.size() > kSamplesMax) samples_.pop_front();
}

HttpReply Observations::Events(const HttpRequest& request, const FleetList& fleet) const {
  const auto since = NumberIn(request, "since", 0);
  const auto limit = NumberIn(request, "limit", 100);
  if (!since || !limit) return HttpError(400, "since, limit: must be numbers");
  std::deque<Seen> events;
  uint64_t next = 0;
  {
    const MutexLock lock(mutex_);
    next = events_seen_;
    const uint64_t first = next - events_.size();
    const uint64_t from = *since > next ? first : std::max(first, *since);
    events.assign(events_.begin() + static_cast<int64_t>(from - first), events_.end());
  }
  std::map<WorkerId, std::string> names;
  for (const auto& worker : fleet.workers) names[worker->id] = worker->config.worker.name;
  Json list = Json::array();
  const uint64_t most = std::min(*limit, kEventsPerReply);
  for (auto it = events.rbegin(); it != events.rend() && list.size() < most; ++it) {
    const std::string group = it->group < 0 ? "" : std::to_string(it->group);
    const char* const type = kTypeNames[static_cast<size_t>(it->type)];
    const auto name = names.find(it->worker);
    if (name == names.end() || !Matches(request, "worker", name->second) ||
        !Matches(request, "type", type) || !Matches(request, "tier", TierName(it->tier)) ||
        !Matches(request, "group", group)) {
      continue;
    }
    list.push_back({{"worker", name->second},
                    {"seq", it->seq},
                    {"time", it->ts},
                    {"type", type},
                    {"tier", TierName(it->tier)},
                    {"group", it->group < 0 ? Json(nullptr) : Json(it->group)},
                    {"blocks", it->blocks},
                    {"tokens", it->tokens},
                    {"first_hash", it->first ? HashJson(*it->first) : Json(nullptr)}});
  }
  return JsonReply(Dump({{"events", std::move(list)}, {"next", next}}));
}

HttpReply Observations::Decisions(const HttpRequest& request) const {
  const auto since = NumberIn(request, "since", 0);
  if (!since) return HttpError(400, "since: must be a number");
  std::vector<Decided> decisions;
  uint64_t next = 0;
  {
    const MutexLock lock(mutex_);
    next = decisions_seen_;
    decisions = Tail(decisions_, next, *since);
  }
  Json list = Json::array();
  for (size_t i = 0; i < decisions.size(); ++i) {
    Json json = Json::parse(RenderDecision(decisions[i].decision));
    json["time"] = decisions[i].time;
    json["number"] = next - decisions.size() + i;
    list.push_back(std::move(json));
  }
  return JsonReply(Dump({{"decisions", std::move(list)}, {"next", next}}));
}

HttpReply Observations::History(const HttpRequest& request) const {
  const auto since = NumberIn(request, "since", 0);
  if (!since) return HttpError(400, "since: must be a number");
  std::vector<Json> samples;
  uint64_t next = 0;
  {
    const MutexLock lock(mutex_);
    next = samples_seen_;
    samples = Tail(samples_, next, *since);
  }
  return JsonReply(Dump({{"samples", std::move(samples)}, {"next", next}}));
}

}  // namespace kvcast::router
