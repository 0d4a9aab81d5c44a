// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/observations.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <variant>

#include "kvcast/core/tier.h"
#include "router/service/json/json_fields.h"
#include "router/service/json/json_writer.h"
#include "router/service/route/decision_json.h"
#include "router/service/route/service_core.h"

namespace kvcast::router {
namespace {

constexpr std::array kTypeNames = {"stored", "removed", "cleared"};
constexpr uint64_t kEventsPerReply = 500;

// Reads a number from the query; `otherwise` if the parameter is absent. nullopt: not a number.
std::optional<uint64_t> NumberIn(const HttpRequest& request, const char* name, uint64_t otherwise) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return otherwise;
  uint64_t number = 0;
  const char* const end = it->second.data() + it->second.size();
  const auto [stop, error] = std::from_chars(it->second.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// A parameter of the query; empty: absent.
std::string_view Wanted(const HttpRequest& request, const char* name) {
  const auto it = request.query.find(name);
  return it == request.query.end() ? std::string_view() : std::string_view(it->second);
}

std::string HashText(const BlockHash& hash) {
  if (hash.form() == BlockHash::Form::kNegative) {
    return std::to_string(static_cast<int64_t>(hash.integer()));
  }
  if (!hash.is_bytes()) return std::to_string(hash.integer());
  std::string hex;
  for (const uint8_t byte : hash.bytes()) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// Returns the position of the first entry that the reader has not seen. `since`: "next" of the
// reader's latest reply. `seen`: the number of entries since the start, including dropped entries.
// `size`: the number of kept entries.
uint64_t PositionOf(uint64_t since, uint64_t seen, uint64_t size) {
  const uint64_t first = seen - size;
  // A number that this process has not reached comes from an earlier process: return all entries.
  return since > seen ? 0 : std::max(first, since) - first;
}

}  // namespace

struct Observations::Filter {
  Filter(const HttpRequest& request, const FleetList& fleet) {
    for (const auto& worker : fleet.workers) {
      const std::string& name = worker->config.worker.name;
      if (Takes(Wanted(request, "worker"), name)) names.emplace(worker->id, name);
    }
    for (size_t i = 0; i < types.size(); ++i) {
      types[i] = Takes(Wanted(request, "type"), kTypeNames[i]);
    }
    for (int i = 0; i < kTiers; ++i) {
      tiers[static_cast<size_t>(i)] =
          Takes(Wanted(request, "tier"), TierName(static_cast<Tier>(i)));
    }
    group = Wanted(request, "group");
  }

  bool Matches(const EventEntry& seen) const {
    return types[static_cast<size_t>(seen.type)] && tiers[static_cast<size_t>(seen.tier)] &&
           (group.empty() || (seen.group >= 0 && group == std::to_string(seen.group))) &&
           names.contains(seen.worker);
  }

  std::map<WorkerId, std::string_view> names;  // only the requested workers
  std::array<bool, kTypeNames.size()> types{};
  std::array<bool, kTiers> tiers{};
  std::string_view group;

 private:
  static bool Takes(std::string_view wanted, std::string_view value) {
    return wanted.empty() || wanted == value;
  }
};

template <typename T>
std::vector<T> Observations::Tail(const Recent<T>& recent, uint64_t since, uint64_t& next) {
  const MutexLock lock(recent.mutex);
  next = recent.seen;
  const uint64_t from = PositionOf(since, next, recent.entries.size());
  return {recent.entries.begin() + static_cast<std::ptrdiff_t>(from), recent.entries.end()};
}

Observations::EventEntry Observations::Describe(const Event& event) {
  EventEntry entry;
  if (const auto* stored = std::get_if<BlockStored>(&event)) {
    entry.tier = TierOf(stored->medium);
    entry.group = stored->group_idx.value_or(-1);
    entry.blocks = stored->block_hashes.size();
    entry.tokens = stored->token_ids ? stored->token_ids->size() : 0;
    if (!stored->block_hashes.empty()) entry.first = stored->block_hashes[0];
  } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    entry.type = Type::kRemoved;
    entry.tier = TierOf(removed->medium);
    entry.group = removed->group_idx.value_or(-1);
    entry.blocks = removed->block_hashes.size();
    if (!removed->block_hashes.empty()) entry.first = removed->block_hashes[0];
  } else {
    entry.type = Type::kCleared;
    entry.tier = TierOf(std::get<AllBlocksCleared>(event).medium);
  }
  return entry;
}

void Observations::Note(const FleetWorker& worker, const AppliedBatch& applied) {
  std::vector<EventEntry> joined;  // adjacent events that differ only in their blocks are one entry
  for (const Event& event : applied.batch.events) {
    EventEntry entry = Describe(event);
    if (!joined.empty()) {
      EventEntry& last = joined.back();
      if (last.type == entry.type && last.tier == entry.tier && last.group == entry.group) {
        last.blocks += entry.blocks;
        last.tokens += entry.tokens;
        continue;
      }
    }
    entry.worker = worker.id;
    entry.seq = applied.seq.value;
    entry.ts = applied.batch.ts;
    joined.push_back(std::move(entry));
  }
  // The threads that apply the batches of other workers wait for this mutex.
  const MutexLock lock(events_.mutex);
  const size_t left_out = joined.size() - std::min(joined.size(), kEventsMax);
  events_.seen += joined.size();
  for (size_t i = left_out; i < joined.size(); ++i) {
    events_.entries.push_back(std::move(joined[i]));
    if (events_.entries.size() > kEventsMax) events_.entries.pop_front();
  }
}

void Observations::Note(const RouteDecision& decision, double now) {
  const auto decided = std::make_shared<DecisionEntry>(DecisionEntry{now, decision});
  std::vector<RouteCandidate>& candidates = decided->decision.candidates;
  if (candidates.size() > kCandidatesMax) {
    std::swap(candidates.front(), candidates[decision.chosen]);
    decided->decision.chosen = 0;
    const auto end = candidates.begin() + kCandidatesMax;
    std::partial_sort(candidates.begin() + 1, end, candidates.end(), IsCheaper);
    candidates.erase(end, candidates.end());
    candidates.shrink_to_fit();
  }
  for (RouteCandidate& candidate : candidates) candidate.answer.prefixes = nullptr;
  std::shared_ptr<const DecisionEntry> oldest;  // freed after the lock is released
  const MutexLock lock(decisions_.mutex);
  ++decisions_.seen;
  decisions_.entries.push_back(decided);
  if (decisions_.entries.size() <= kDecisionsMax) return;
  oldest = std::move(decisions_.entries.front());
  decisions_.entries.pop_front();
}

void Observations::Sample(const ServiceCore& core) {
  std::map<std::string, int64_t> held;      // key: "GPU group 1: sliding_window"
  std::map<std::string, uint64_t> removed;  // blocks removed from the GPU, by kind
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
        held[std::string(TierName(static_cast<Tier>(tier))) + " group " + std::to_string(group) +
             ": " + name] += tally.held;
      }
      removed[name] += tallies[group].tiers[static_cast<size_t>(Tier::kGpu)].removed;
    }
    batches += core.fleet->stream(worker->id).batches;
  }
  const RoutingCounters routing = core.request_router->counters();
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
  const MutexLock lock(samples_.mutex);
  sample["number"] = samples_.seen++;
  samples_.entries.push_back(std::make_shared<const Json>(std::move(sample)));
  if (samples_.entries.size() > kSamplesMax) samples_.entries.pop_front();
}

// Returns the newest entries first.
std::vector<Observations::EventEntry> Observations::Select(const Filter& filter, uint64_t since,
                                                           uint64_t limit, uint64_t& next) const {
  std::vector<EventEntry> selected;
  const MutexLock lock(events_.mutex);
  next = events_.seen;
  const uint64_t from = PositionOf(since, next, events_.entries.size());
  for (size_t i = events_.entries.size(); i > from && selected.size() < limit; --i) {
    if (filter.Matches(events_.entries[i - 1])) selected.push_back(events_.entries[i - 1]);
  }
  return selected;
}

HttpReply Observations::Events(const HttpRequest& request, const FleetList& fleet) const {
  const auto since = NumberIn(request, "since", 0);
  const auto limit = NumberIn(request, "limit", 100);
  if (!since || !limit) return HttpError(400, "since, limit: must be numbers");
  const Filter filter(request, fleet);
  uint64_t next = 0;
  const auto events = Select(filter, *since, std::min(*limit, kEventsPerReply), next);
  JsonWriter json;
  json.BeginObject();
  json.Key("events");
  json.BeginArray();
  for (const EventEntry& event : events) {
    json.BeginObject();
    json.Member("worker", filter.names.at(event.worker));
    json.Member("seq", event.seq);
    json.Member("time", event.ts > 0 ? std::optional(event.ts) : std::nullopt);
    json.Member("type", kTypeNames[static_cast<size_t>(event.type)]);
    json.Member("tier", TierName(event.tier));
    json.Member("group", event.group < 0 ? std::nullopt : std::optional(event.group));
    json.Member("blocks", event.blocks);
    json.Member("tokens", event.tokens);
    json.Member("first_hash", event.first ? std::optional(HashText(*event.first)) : std::nullopt);
    json.EndObject();
  }
  json.EndArray();
  json.Member("next", next);
  json.EndObject();
  return JsonReply(json.Take());
}

HttpReply Observations::Decisions(const HttpRequest& request) const {
  const auto since = NumberIn(request, "since", 0);
  if (!since) return HttpError(400, "since: must be a number");
  uint64_t next = 0;
  const auto decisions = Tail(decisions_, *since, next);
  Json list = Json::array();
  for (size_t i = 0; i < decisions.size(); ++i) {
    Json json = Json::parse(RenderDecision(decisions[i]->decision));
    json["time"] = decisions[i]->time;
    json["number"] = next - decisions.size() + i;
    list.push_back(std::move(json));
  }
  return JsonReply(Dump({{"decisions", std::move(list)}, {"next", next}}));
}

HttpReply Observations::History(const HttpRequest& request) const {
  const auto since = NumberIn(request, "since", 0);
  if (!since) return HttpError(400, "since: must be a number");
  uint64_t next = 0;
  Json list = Json::array();
  for (const auto& sample : Tail(samples_, *since, next)) list.push_back(*sample);
  return JsonReply(Dump({{"samples", std::move(list)}, {"next", next}}));
}

}  // namespace kvcast::router
