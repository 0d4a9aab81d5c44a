// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_manager_replay.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "apps/conformance/offload/offload_names.h"
#include "apps/conformance/scenario/scenario_event.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

OffloadConfig ParseManagerConfig(const Json& value, bool compatible) {
  OffloadConfig config;
  config.chunk_bytes.assign(value.at("num_groups").get<size_t>(), config.page_bytes);
  config.capacity_bytes = value.at("num_blocks").get<int64_t>() * config.page_bytes;
  const std::string policy = value.at("policy");
  if (policy != "lru" && policy != "arc") throw std::runtime_error("unknown policy " + policy);
  config.policy = policy == "arc" ? EvictionPolicyKind::kArc : EvictionPolicyKind::kLru;
  config.store_threshold = value.at("store_threshold");
  config.max_tracker_size = value.at("max_tracker_size");
  config.enable_events = value.at("events_enabled");
  config.medium = value.at("medium");
  config.compatible = compatible;
  if (value.contains("rules")) {
    const auto rules = ParseEngineRules(value.at("rules").get<std::string>());
    if (!rules) throw std::runtime_error("unknown rules");
    config.rules = *rules;
  }
  return config;
}

char Letter(LookupResult result) {
  switch (result) {
    case LookupResult::kMiss:
      return 'M';
    case LookupResult::kHit:
      return 'H';
    case LookupResult::kPending:
      return 'P';
    case LookupResult::kRetry:
      break;
  }
  return 'R';
}

Json Numbers(const std::vector<SlotId>& slots) {
  Json numbers = Json::array();
  for (const SlotId slot : slots) numbers.push_back(slot.value);
  return numbers;
}

Json Reversed(Json list) {
  std::reverse(list.begin(), list.end());
  return list;
}

// The recording contains the size of each allocation.
AllocationSizes ParseSizes(const Json& stats) {
  AllocationSizes sizes;
  if (!stats.contains("cpu_allocation_size")) return sizes;
  for (const int64_t size : stats.at("cpu_allocation_size")) sizes.Add(size);
  return sizes;
}

}  // namespace

OffloadManagerReplay::OffloadManagerReplay(const Json& config, bool compatible,
                                           OffloadChecks& checks)
    : checks_(checks) {
  auto manager = OffloadManager::Create(ParseManagerConfig(config, compatible));
  if (!manager.ok()) throw std::runtime_error(manager.status().ToString());
  manager_ = std::move(manager).value();
  for (const Json& hex : config.at("keys")) {
    keys_.push_back(OffloadKeyOf(hex));
    numbers_.emplace(keys_.back(), std::ssize(keys_) - 1);
  }
  ends_ = config.value("ends", std::vector<int64_t>(keys_.size()));
}

void OffloadManagerReplay::Run(const Json& op) {
  const std::string name = op.at("op");
  Call(name, op);
  const OffloadManager::State state = manager_->Inspect();
  checks_.Expect(
      {state.slots_used_once, state.free_slots.size(), state.evictable_slots, state.storing_slots},
      op.at("n"), name + ": n");
  if (op.contains("arc")) {
    checks_.Expect({state.t1_target, state.t1_chunks, std::ssize(state.chunks) - state.t1_chunks,
                    state.ghosts_t1.size(), state.ghosts_t2.size()},
                   op.at("arc"), name + ": arc");
  }
  if (op.contains("state")) CheckState(op.at("state"), state);
}

void OffloadManagerReplay::Call(const std::string& name, const Json& op) {
  const auto keys = Keys(op.value("keys", Json::array()));
  const std::vector<int64_t> ends = Ends(op.value("keys", Json::array()));
  // Before v0.32, vLLM's manager ignores the request, and the recordings do not name it.
  const OffloadUse use{OffloadRequestId(op.value("request", uint64_t{0})), ends};
  if (name == "lookup") {
    checks_.Expect(Lookup(keys, use.request), op.at("result"), name);
  } else if (name == "prepare_store") {
    checks_.Expect(PrepareStore(keys, use), op.at("result"), name);
  } else if (name == "complete_store") {
    manager_->CompleteStore(keys, op.at("success"));
  } else if (name == "prepare_load") {
    std::vector<SlotId> slots;
    checks_.Check(manager_->PrepareLoad(keys, slots, use).ok(), name + " fails");
    checks_.Expect(tools::Numbers(slots), op.at("slots"), name);
  } else if (name == "complete_load") {
    checks_.Check(manager_->CompleteLoad(keys).ok(), name + " fails");
  } else if (name == "touch") {
    manager_->Touch(keys);
  } else if (name == "take_events") {
    checks_.Expect(TakeEvents(), op.at("events"), name);
  } else if (name == "get_stats") {
    CheckStats(op.at("stats"));
  } else if (name == "request_finished") {
    manager_->FinishRequest(use.request);
  } else if (name == "reset_cache") {
    manager_->Reset();
  } else {
    throw std::runtime_error("unknown op " + name);
  }
}

Json OffloadManagerReplay::Lookup(const std::vector<OffloadKey>& keys, OffloadRequestId request) {
  std::string letters;
  for (const OffloadKey& key : keys) letters.push_back(Letter(manager_->Lookup(key, request)));
  return letters;
}

Json OffloadManagerReplay::PrepareStore(const std::vector<OffloadKey>& keys,
                                        const OffloadUse& use) {
  StorePlan plan;
  if (!manager_->PrepareStore(keys, plan, use).ok()) return nullptr;
  return {{"to_store", Numbers(plan.keys)},
          {"slots", tools::Numbers(plan.slots)},
          {"evicted", Numbers(plan.evicted)}};
}

Json OffloadManagerReplay::TakeEvents() {
  Json events = Json::array();
  for (const OffloadEvent& event : manager_->TakeEvents()) {
    events.push_back({{"removed", event.kind == OffloadEvent::Kind::kRemoved},
                      {"medium", manager_->config().medium},
                      {"keys", Numbers(event.keys)}});
  }
  return events;
}

void OffloadManagerReplay::CheckStats(const Json& recorded) {
  const OffloadStats stats = manager_->TakeStats();
  checks_.Expect(stats.usage, recorded.at("cpu_cache_usage_perc"), "usage");
  checks_.Expect(stats.write_usage, recorded.at("cpu_cache_write_usage_perc"), "write usage");
  checks_.Expect(stats.read_usage, recorded.at("cpu_cache_read_usage_perc"), "read usage");
  checks_.Expect(stats.stores_skipped, recorded.value("stores_skipped", 0), "stores_skipped");
  checks_.Check(stats.allocation_sizes == ParseSizes(recorded), "allocation sizes differ");
}

void OffloadManagerReplay::CheckState(const Json& recorded, const OffloadManager::State& state) {
  checks_.Expect(Reversed(tools::Numbers(state.free_slots)), recorded.at("free_list"), "free_list");
  Json tracker = Json::array();
  for (const auto& [key, count] : state.lookup_counts) tracker.push_back({numbers_.at(key), count});
  const Json& counts = recorded.at("tracker");
  if (!counts.is_null()) checks_.Expect(tracker, counts, "tracker");

  Json t1 = Json::array();
  Json t2 = Json::array();
  Json idle = Json::array();
  for (const auto& chunk : state.chunks) {
    const int64_t number = numbers_.at(chunk.key);
    (std::ssize(t1) < state.t1_chunks ? t1 : t2)
        .push_back({number, chunk.slots.at(0).value, chunk.readers});
    if (chunk.readers == 0) idle.push_back(number);
  }
  if (recorded.contains("t1")) {
    checks_.Expect(t1, recorded.at("t1"), "t1");
    checks_.Expect(t2, recorded.at("t2"), "t2");
    checks_.Expect(Numbers(state.ghosts_t1), recorded.at("b1"), "b1");
    checks_.Expect(Numbers(state.ghosts_t2), recorded.at("b2"), "b2");
    checks_.Expect(state.t1_target, recorded.at("p"), "p");
    return;
  }
  checks_.Expect(idle, recorded.at("evictable"), "evictable");
  Json blocks = recorded.at("blocks");  // in the order of a hash table; the order has no meaning
  std::sort(blocks.begin(), blocks.end());
  std::sort(t2.begin(), t2.end());
  checks_.Expect(t2, blocks, "blocks");
}

std::vector<OffloadKey> OffloadManagerReplay::Keys(const Json& numbers) const {
  std::vector<OffloadKey> keys;
  for (const size_t number : numbers) keys.push_back(keys_.at(number));
  return keys;
}

std::vector<int64_t> OffloadManagerReplay::Ends(const Json& numbers) const {
  std::vector<int64_t> ends;
  for (const size_t number : numbers) ends.push_back(ends_.at(number));
  return ends;
}

Json OffloadManagerReplay::Numbers(const std::vector<OffloadKey>& keys) const {
  Json numbers = Json::array();
  for (const OffloadKey& key : keys) numbers.push_back(numbers_.at(key));
  return numbers;
}

}  // namespace kvcast::tools
