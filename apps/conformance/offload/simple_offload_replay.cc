// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/simple_offload_replay.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "apps/conformance/offload/offload_layout_json.h"
#include "apps/conformance/scenario/scenario_event.h"

namespace kvcast::tools {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

namespace {

// A recorded hash is a number. The digest is chosen so that events contain this number.
Digest DigestOf(uint64_t number) {
  Digest digest;
  digest.size = 32;
  for (size_t i = 0; i < 8; ++i) {
    digest.data[31 - i] = static_cast<uint8_t>(number >> (8 * i));
    digest.data[i] = static_cast<uint8_t>((number * 0x9E3779B97F4A7C15u) >> (8 * i));
  }
  return digest;
}

Json Numbers(std::span<const BlockId> blocks) {
  Json numbers = Json::array();
  for (const BlockId block : blocks) numbers.push_back(block.value);
  return numbers;
}

Json Pairs(const BlockPairs& pairs) {
  return {{"gpu", Numbers(pairs.gpu)}, {"cpu", Numbers(pairs.cpu)}};
}

Json EventNumber(const std::optional<int64_t>& event) { return event.value_or(-1); }

Json KeyNumber(const BlockContent& content) {
  return {content.digest.low64(), content.group.value};
}

SimpleOffloadConfig ParseSimpleConfig(const Json& value, bool compatible) {
  SimpleOffloadConfig config;
  for (const Json& group : value.at("groups")) {
    config.cache.groups.push_back(ParseOffloadGroup(group));
  }
  config.cache.num_blocks = value.at("num_gpu_blocks");
  config.cache.max_model_len = value.at("max_model_len");
  config.cache.max_in_flight_tokens = value.at("max_num_batched_tokens");
  config.cache.hash_block_size = value.at("hash_block_size");
  config.cache.scheduler_block_size = value.at("scheduler_block_size");
  config.num_cpu_blocks = value.at("num_cpu_blocks");
  const std::string mode = value.at("mode");
  if (mode != "eager" && mode != "lazy") throw std::runtime_error("unknown mode " + mode);
  config.mode = mode == "lazy" ? StoreMode::kLazy : StoreMode::kEager;
  config.num_workers = value.at("num_workers");
  config.compatible = compatible;
  return config;
}

}  // namespace

SimpleOffloadReplay::SimpleOffloadReplay(const Json& config, bool compatible, OffloadChecks& checks)
    : checks_(checks), config_(ParseSimpleConfig(config, compatible)) {
  gpu_ = std::make_unique<RecordedGpuBlocks>(config_.cache.groups.size());
  auto offload = SimpleOffload::Create(config_, *gpu_);
  if (!offload.ok()) throw std::runtime_error(offload.status().ToString());
  offload_ = std::move(offload).value();
  config_ = offload_->config();
  const int64_t target = config.at("lazy_target_free");
  if (config_.mode == StoreMode::kLazy) {
    checks_.Expect(config_.lazy_target_free, target, "lazy_target_free");
  }
}

void SimpleOffloadReplay::Run(std::string_view line) {
  const Json record = Json::parse(line);
  if (record.value("record", "") == "final") return CheckFinal(record);
  const Ordered ordered = Ordered::parse(line);  // the order of the reports matters
  for (size_t i = 0; i < record.at("ops").size(); ++i) {
    Call(record.at("ops")[i], ordered.at("ops")[i]);
  }
  const SimpleOffload::State state = offload_->Inspect();
  int64_t loading = 0;
  for (const auto& [event, requests] : state.loads) loading += std::ssize(requests);
  loading -= std::ssize(state.abandoned_loads);
  checks_.Expect({loading, state.requests.size(), state.matches.size()}, record.at("tracked"),
                 "tracked");
  CheckEvents(record.value("cpu_pool_events", Json::array()));
  const Status status = offload_->CheckInvariants();
  checks_.Check(status.ok(), status.ToString());
  checks_.Check(!gpu_->is_misused(),
                "our scheduler uses a GPU block that the recording does not contain, or unpins "
                "too often");
}

void SimpleOffloadReplay::Call(const Json& op, const Ordered& ordered) {
  const std::string name = op.at("op");
  if (name == "new_request") {
    NewRequest(op);
  } else if (name == "hashes") {
    AddHashes(op);
  } else if (name == "match") {
    Match(op);
  } else if (name == "alloc") {
    Alloc(op);
  } else if (name == "step_meta") {
    BuildStep(op);
  } else if (name == "completions") {
    Complete(op, ordered);
  } else if (name == "reset_cache") {
    Reset(op);
  } else if (name == "request_finished") {
    offload_->RequestFinished(Find(op), 0);
    checks_.Expect({false, nullptr}, op.at("result"), name);
  } else if (name != "output" && name != "abort") {
    throw std::runtime_error("unknown op " + name);
  }
  if (op.contains("cpu_free")) {
    checks_.Expect(offload_->usage().free_blocks, op.at("cpu_free"), name + ": cpu_free");
  }
}

void SimpleOffloadReplay::NewRequest(const Json& op) {
  CacheRequest& request = requests_[op.at("req")];
  request.id = op.at("req");
  request.tokens.resize(op.at("n").get<size_t>());
  request.prompt_tokens = op.at("n");
}

void SimpleOffloadReplay::AddHashes(const Json& op) {
  CacheRequest& request = Find(op);
  request.chain.resize(op.at("from").get<size_t>());
  for (const size_t number : op.at("ids")) {
    hash_index_.resize(std::max(hash_index_.size(), number + 1));
    hash_index_[number] = std::ssize(request.chain);
    request.chain.push_back(DigestOf(number));
  }
  // Sampled tokens are not recorded. The number of hashes shows how many tokens were sampled.
  const size_t hashed = request.chain.size() * static_cast<size_t>(config_.cache.hash_block_size);
  request.tokens.resize(std::max(request.tokens.size(), hashed));
}

void SimpleOffloadReplay::Match(const Json& op) {
  CacheRequest& request = Find(op);
  request.tokens.resize(op.at("num_tokens").get<size_t>());
  const int64_t tokens = offload_->Match(request, op.at("local"));
  checks_.Expect(tokens, op.at("result"), "match");
  checks_.Expect(tokens > 0, op.at("async"), "match: async");
  if (tokens == 0 || !op.contains("cpu_blocks")) return;
  Json blocks;
  for (const auto& [id, groups] : offload_->Inspect().matches) {
    if (id != request.id) continue;
    for (const auto& group : groups) blocks.push_back(Numbers(group));
  }
  checks_.Expect(blocks, op.at("cpu_blocks"), "match: cpu_blocks");
}

void SimpleOffloadReplay::Alloc(const Json& op) {
  const CacheRequest& request = Find(op);
  gpu_->SetTable(request.id, op.at("blocks"), false);
  checks_.Check(offload_->UpdateAfterAlloc(request, op.at("external")).ok(), "alloc fails");
}

BlockContent SimpleOffloadReplay::Content(const Json& key) const {
  const auto number = key.at(0).get<size_t>();
  const GroupIdx group(key.at(1).get<uint32_t>());
  return {DigestOf(number), group, (hash_index_.at(number) + 1) * config_.cache.hash_block_size};
}

void SimpleOffloadReplay::ReadScan(const Json& op) {
  gpu_->ClearScan();
  const auto add = [this](const Json& block) {
    std::optional<BlockContent> content;
    if (!block.at(1).is_null()) content = Content(block.at(1));
    gpu_->SetContent(BlockId(block.at(0).get<uint32_t>()), content);
  };
  const Json scans = op.value("gpu_scan", Json::object());
  for (const Json& scan : scans) {
    for (const Json& group : scan.at("blocks")) {
      for (const Json& block : group) add(block);
    }
  }
  if (config_.mode == StoreMode::kEager) return;
  std::optional<BlockId> cursor;
  if (!op.at("cursor").is_null()) cursor = BlockId(op.at("cursor").get<uint32_t>());
  std::vector<BlockId> queue;
  for (const Json& block : op.at("gpu_free_queue_after_cursor")) {
    add(block);
    queue.emplace_back(block.at(0).get<uint32_t>());
  }
  gpu_->SetFreeQueue(cursor, std::move(queue));
}

std::vector<StepRequest> SimpleOffloadReplay::ReadScheduled(const Json& op) {
  std::vector<StepRequest> scheduled;
  const Json& counts = op.at("scheduled");
  const auto add = [&](const Json& entry, bool append) {
    const std::string id = entry.at("req");
    if (!entry.at("blocks").is_null()) gpu_->SetTable(id, entry.at("blocks"), append);
    scheduled.push_back({&Find(entry), counts.at(id).at(0)});
  };
  for (const Json& entry : op.at("new")) add(entry, false);
  for (const Json& entry : op.at("cached")) add(entry, !entry.value("resumed", false));
  return scheduled;
}

void SimpleOffloadReplay::CheckCursors(const Json& op) {
  const SimpleOffload::State state = offload_->Inspect();
  const Json scans = op.value("gpu_scan", Json::object());
  for (const auto& [id, scan] : scans.items()) {
    const auto found = std::find_if(state.requests.begin(), state.requests.end(),
                                    [&id](const auto& entry) { return entry.first == id; });
    checks_.Expect(found == state.requests.end() ? Json() : Json(found->second), scan.at("cursor"),
                   "cursor of " + id);
  }
}

void SimpleOffloadReplay::CheckTransfers(const Json& op) {
  checks_.Expect(EventNumber(step_.load_event), op.at("load_event"), "load_event");
  checks_.Expect(Pairs(step_.load), op.at("load"), "load");
  checks_.Expect(EventNumber(step_.store_event), op.at("store_event"), "store_event");
  Json store = Pairs(step_.store);
  store["hashes"] = Json::array();
  for (const BlockContent& content : step_.content) store["hashes"].push_back(KeyNumber(content));
  checks_.Expect(store, op.at("store"), "store");
  checks_.Expect(step_.need_flush, op.at("need_flush"), "need_flush");
  Json events = Json::object();
  for (const auto& [event, ids] : offload_->Inspect().loads) events[std::to_string(event)] = ids;
  Json recorded = op.at("load_event_to_reqs");
  for (auto& [event, ids] : recorded.items()) std::sort(ids.begin(), ids.end());
  checks_.Expect(events, recorded, "load_event_to_reqs");
}

void SimpleOffloadReplay::BuildStep(const Json& op) {
  const Json preempted = op.value("preempted", Json::array());
  for (const std::string id : preempted) offload_->Preempt(requests_.at(id), 0);
  const std::vector<StepRequest> scheduled = ReadScheduled(op);
  ReadScan(op);
  CheckCursors(op);
  checks_.Expect(offload_->usage().free_blocks, op.at("cpu_free_before"), "cpu_free_before");
  offload_->BuildStep(scheduled, step_);
  CheckTransfers(op);
}

void SimpleOffloadReplay::Complete(const Json& op, const Ordered& ordered) {
  for (const std::string id : op.at("finished_recving")) {
    checks_.Check(offload_->CompleteLoad(id).ok(), "load of " + id + " is not in progress");
  }
  for (const auto& [event, workers] : ordered.at("store_events").items()) {
    checks_.Check(offload_->CompleteStore(std::stoll(event), workers.get<int64_t>()).ok(),
                  "store " + event + " is not in progress");
  }
  int64_t keys = 0;
  for (uint32_t i = 0; i < config_.cache.groups.size(); ++i) {
    keys += std::ssize(offload_->CachedKeys(GroupIdx(i)));
  }
  checks_.Expect(keys, op.at("cpu_cached_keys"), "cpu_cached_keys");
}

void SimpleOffloadReplay::Reset(const Json& op) {
  checks_.Expect(offload_->Reset(), op.at("result"), "reset_cache");
  const SimpleOffload::State state = offload_->Inspect();
  checks_.Expect(state.abandoned_stores, op.at("abandoned_store_events"), "abandoned_store_events");
  Json loads = op.at("abandoned_loads");
  std::sort(loads.begin(), loads.end());
  checks_.Expect(state.abandoned_loads, loads, "abandoned_loads");
}

void SimpleOffloadReplay::CheckEvents(const Json& recorded) {
  std::vector<Event> events;
  for (const Json& event : recorded) events.push_back(ScenarioEvent(event));
  checks_.Check(offload_->TakeEvents() == events, "cpu_pool_events differ");
}

void SimpleOffloadReplay::CheckFinal(const Json& record) {
  const SimpleOffload::State state = offload_->Inspect();
  checks_.Expect(Numbers(state.free_blocks), record.at("cpu_free_queue"), "cpu_free_queue");
  std::map<std::string, std::map<uint64_t, std::vector<uint32_t>>> ours;
  for (const auto& [block, content] : state.cached) {
    ours[std::to_string(content.group.value)][content.digest.low64()].push_back(block.value);
  }
  decltype(ours) theirs;
  for (const auto& [group, keys] : record.at("cpu_cached").items()) {
    for (const Json& key : keys) {
      auto& blocks = theirs[group][key.at(0)];
      if (key.at(1).is_array()) {
        blocks = key.at(1).get<std::vector<uint32_t>>();
      } else {
        blocks.push_back(key.at(1));
      }
      std::sort(blocks.begin(), blocks.end());
    }
  }
  checks_.Check(ours == theirs, "cpu_cached differs");
  const bool idle = !offload_->has_pending_work();
  checks_.Check(!idle || gpu_->pins() == 0, "GPU blocks stay pinned");
}

CacheRequest& SimpleOffloadReplay::Find(const Json& op) { return requests_.at(op.at("req")); }

}  // namespace kvcast::tools
