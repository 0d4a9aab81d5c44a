// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_run_replay.h"

#include <algorithm>
#include <stdexcept>

#include "apps/conformance/offload/offload_layout_json.h"
#include "apps/support/or_null.h"
#include "kvcast/offload/offload_params.h"

namespace kvcast::tools {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

namespace {

constexpr int64_t kNow = 0;  // recorded runs have no timeouts

template <typename Ids>
Json Values(const Ids& ids) {
  Json list = Json::array();
  for (const auto id : ids) list.push_back(id.value);
  return list;
}

std::vector<std::vector<BlockId>> Tables(const Json& value) {
  std::vector<std::vector<BlockId>> tables;
  if (value.is_null()) return tables;
  for (const Json& group : value) {
    std::vector<BlockId>& table = tables.emplace_back();
    for (const uint32_t block : group) table.push_back(BlockId(block));
  }
  return tables;
}

OffloadSchedulerConfig ParseSchedulerConfig(const Json& value, bool compatible,
                                            OffloadObserver* observer) {
  OffloadSchedulerConfig config;
  config.layout = ParseLayoutConfig(value);
  OffloadConfig& memory = config.memory;
  memory.chunk_bytes.assign(config.layout.groups.size(), memory.page_bytes);
  memory.capacity_bytes = value.at("cpu_slots").get<int64_t>() * memory.page_bytes;
  memory.policy =
      value.at("eviction_policy") == "arc" ? EvictionPolicyKind::kArc : EvictionPolicyKind::kLru;
  memory.store_threshold = value.at("store_threshold");
  memory.max_tracker_size = value.at("max_tracker_size");
  config.policy = value.at("offload_policy") == "request_level" ? OffloadPolicy::kRequestLevel
                                                                : OffloadPolicy::kChunkLevel;
  config.prompt_only = value.at("offload_prompt_only");
  config.num_workers = value.at("num_workers");
  config.gpu_prefix_caching = value.at("gpu_prefix_caching");
  config.hash_form =
      value.at("event_hashes") == "bytes" ? EventHashForm::kBytes : EventHashForm::kInt64;
  config.self_describing_events = value.at("self_describing_kv_events");
  config.observer = observer;
  config.compatible = compatible;
  return config;
}

}  // namespace

OffloadRunReplay::OffloadRunReplay(const Json& config, bool compatible, OffloadChecks& checks)
    : checks_(checks), literal_tokens_(config.at("event_tokens") == "literal"), calls_(names_) {
  auto scheduler = OffloadScheduler::Create(ParseSchedulerConfig(config, compatible, &calls_));
  if (!scheduler.ok()) throw std::runtime_error(scheduler.status().ToString());
  scheduler_ = std::move(scheduler).value();
  Json derived = config.at("derived");
  for (Json& group : derived) {
    group.erase("spec_kind");
    group.erase("event_window");
  }
  checks_.Expect(GroupsJson(scheduler_->layout()), derived, "derived");
}

void OffloadRunReplay::Run(std::string_view line) {
  const Json record = Json::parse(line);
  if (record.contains("ops")) {
    const Ordered ordered = Ordered::parse(line);  // the order of the requests matters
    for (size_t i = 0; i < record.at("ops").size(); ++i) {
      Op(record.at("ops")[i], ordered.at("ops")[i]);
    }
    engine_failed_ = record.value("engine_error", false);
    if (!engine_failed_) CheckStep(record);
  } else if (!engine_failed_) {
    CheckFinal(record.at("state"));
  }
}

void OffloadRunReplay::Op(const Json& op, const Ordered& ordered) {
  const std::string name = op.at("op");
  if (name == "new_request") return NewRequest(op);
  if (name == "hashes") return Hashes(op);
  if (name == "match") return Match(op);
  if (name == "alloc") return Alloc(op);
  if (name == "step_meta") return Step(op, ordered);
  if (name == "output") return Output(op);
  if (name == "completions") return Completions(op, ordered);
  if (name == "reset_cache") return ResetCache(op);
  if (name == "request_finished") {
    Request& request = Get(op.at("req"));
    checks_.Expect(request.cache.tokens.size(), op.at("num_tokens"), "num_tokens");
    scheduler_->RequestFinished(request.id, op.at("computed"), op.at("status") == "aborted");
    return;
  }
  // The effects of these operations are recorded as separate operations.
  if (name == "abort" || name == "gpu_reset") return;
  throw std::runtime_error("unknown op " + name);
}

void OffloadRunReplay::NewRequest(const Json& op) {
  const std::string name = op.at("req");
  auto request = std::make_unique<Request>();
  request->id = names_.RequestId(name);
  CacheRequest& cache = request->cache;
  cache.id = name;
  const int64_t length = op.at("n");
  if (op.contains("from")) {
    const std::vector<TokenId>& source = Get(op.at("from")).cache.tokens;
    cache.tokens.assign(source.begin(), source.begin() + op.at("take").get<int64_t>());
    for (const TokenId token : op.at("then")) cache.tokens.push_back(token);
  } else if (op.contains("tokens")) {
    cache.tokens = op.at("tokens").get<std::vector<TokenId>>();
  } else {
    cache.tokens.assign(static_cast<size_t>(length), 0);
  }
  cache.prompt_tokens = length;
  cache.skip_prefix_lookup = op.value("skip_reading_prefix_cache", false);
  if (op.contains("lora") && !op.at("lora").is_null()) {
    cache.hash_inputs.lora_name = op.at("lora").at("name");
    cache.lora_id = op.at("lora").at("id").get<int64_t>();
  }
  OffloadRequestOptions options;
  if (op.contains("kv_transfer_params") && op.at("kv_transfer_params").is_object()) {
    const auto params = ParseOffloadParams(op.at("kv_transfer_params").dump());
    if (!params.ok()) throw std::runtime_error(params.status().ToString());
    options.max_offload_tokens = params->max_offload_tokens;
  }
  if (Status status = scheduler_->AddRequest(request->id, cache, options); !status.ok()) {
    throw std::runtime_error(status.ToString());
  }
  requests_[name] = std::move(request);
}

void OffloadRunReplay::Hashes(const Json& op) {
  size_t next = 0;
  std::vector<Digest>& chain = Get(op.at("req")).cache.chain;
  chain.resize(op.at("from").get<size_t>());
  for (const int64_t number : op.at("ids")) {
    if (number == names_.num_hashes()) {
      names_.AddHash(op.contains("new_hex") ? op.at("new_hex").at(next++).get<std::string>() : "");
    }
    chain.push_back(names_.digest(number));
  }
}

void OffloadRunReplay::Match(const Json& op) {
  const Request& request = Get(op.at("req"));
  checks_.Expect(request.cache.tokens.size(), op.at("num_tokens"), "num_tokens");
  const OffloadMatch match = scheduler_->MatchedTokens(request.id, op.at("local"), kNow);
  checks_.Expect(OrNull(match.tokens), op.at("result"), "match");
  checks_.Expect(match.tokens.value_or(0) > 0, op.at("async"), "match: async");
  checks_.Expect(scheduler_->InspectRequest(request.id)->hit_chunks, op.at("hit_chunks"),
                 "match: hit_chunks");
  checks_.Expect(OrNull(match.tail_boundary), op.value("partial_tail_boundary", Json()),
                 "match: partial_tail_boundary");
  checks_.Expect(calls_.Take(), ExpandTouches(op.at("calls")), "match: calls");
}

void OffloadRunReplay::Alloc(const Json& op) {
  const Request& request = Get(op.at("req"));
  const int64_t external = op.at("external");
  if (external == 0) return;
  const auto tables = Tables(op.at("blocks"));
  const OffloadJobId job = scheduler_->next_job();
  const Status status = scheduler_->UpdateAfterAlloc(request.id, external, tables);
  checks_.Check(status.ok(), "alloc: " + status.ToString());
  checks_.Expect(job.value, op.at("job"), "alloc: job");
  checks_.Expect(NextStored(request.id), op.at("next_stored_chunk"), "alloc: next_stored_chunk");
  checks_.Expect(calls_.Take(), op.at("calls"), "alloc: calls");
  expected_loads_[std::to_string(op.at("job").get<int64_t>())] = op.at("load");
}

std::vector<OffloadStep::Scheduled> OffloadRunReplay::Scheduled(const Json& op,
                                                                const Ordered& ordered) {
  std::map<std::string, bool> starts;
  blocks_.clear();
  for (const Json& request : op.at("new")) {
    starts[request.at("req")] = true;
    blocks_[request.at("req")] = Tables(request.at("blocks"));
  }
  for (const Json& request : op.at("cached")) {
    starts[request.at("req")] = request.value("resumed", false);
    blocks_[request.at("req")] = Tables(request.at("blocks"));
  }
  std::vector<OffloadStep::Scheduled> scheduled;
  for (const auto& [name, counts] : ordered.at("scheduled").items()) {
    scheduled.push_back({Get(name).id, counts.at(0), counts.at(1), starts[name], blocks_[name]});
  }
  return scheduled;
}

std::vector<OffloadStep::Tail> OffloadRunReplay::Tails(const Ordered& ordered) {
  std::vector<OffloadStep::Tail> tails;
  if (!ordered.contains("partial_tail_offloads")) return tails;
  for (const auto& [name, entries] : ordered.at("partial_tail_offloads").items()) {
    for (const auto& entry : entries) {
      tails.push_back({Get(name).id, GroupIdx(entry.at(0).get<uint32_t>()),
                       BlockId(entry.at(1).get<uint32_t>()), entry.at(2).get<int64_t>()});
    }
  }
  return tails;
}

void OffloadRunReplay::Step(const Json& op, const Ordered& ordered) {
  const auto scheduled = Scheduled(op, ordered);
  const auto tails = Tails(ordered);
  std::vector<OffloadRequestId> preempted;
  for (const std::string name : op.value("preempted", Json::array())) {
    preempted.push_back(Get(name).id);
  }
  CheckPlan(scheduler_->BuildStep({scheduled, preempted, tails}), op);
  Json next = Json::object();
  for (const auto& [name, recorded] : op.at("next_stored_chunk").items()) {
    next[name] = NextStored(Get(name).id);
  }
  checks_.Expect(next, op.at("next_stored_chunk"), "step: next_stored_chunk");
  checks_.Expect(calls_.Take(), ExpandTouches(op.at("calls")), "step: calls");
  Json fenced = Json::object();
  for (const auto& [block, jobs] : scheduler_->FencedBlocks()) {
    fenced[std::to_string(block.value)] = Values(jobs);
  }
  checks_.Expect(fenced, op.at("fenced_blocks"), "step: fenced_blocks");
}

void OffloadRunReplay::CheckPlan(const OffloadPlan& plan, const Json& op) {
  Json load_ids = Json::array();
  Json loads = Json::object();
  for (const OffloadJob& job : plan.loads) {
    load_ids.push_back(job.id.value);
    loads[std::to_string(job.id.value)] = JobJson(job);
  }
  Json stores = Json::object();
  for (const OffloadJob& job : plan.stores) stores[std::to_string(job.id.value)] = JobJson(job);
  const auto without_notes = [](Json jobs) {
    for (Json& job : jobs) {
      for (const char* note : {"wrong_source_blocks", "wrong_dest_blocks", "wrong_reason",
                               "source_last_token_not_computed", "source_wrong"}) {
        job.erase(note);
      }
    }
    return jobs;
  };
  checks_.Expect(load_ids, op.at("load_jobs"), "step: load_jobs");
  checks_.Expect(loads, without_notes(std::exchange(expected_loads_, Json::object())),
                 "step: loads");
  checks_.Expect(stores, without_notes(op.at("store_jobs")), "step: store_jobs");
  checks_.Expect(Values(plan.flush), op.at("flush"), "step: flush");
}

void OffloadRunReplay::Output(const Json& op) {
  const bool literal = op.contains("tokens");
  for (const auto& [name, sampled] : op.at(literal ? "tokens" : "sampled").items()) {
    std::vector<TokenId>& tokens = Get(name).cache.tokens;
    if (!literal) {
      tokens.insert(tokens.end(), sampled.get<size_t>(), 0);
    } else if (sampled.is_array()) {
      for (const TokenId token : sampled) tokens.push_back(token);
    } else {
      tokens.push_back(sampled.get<TokenId>());
    }
  }
}

void OffloadRunReplay::Completions(const Json& op, const Ordered& ordered) {
  std::vector<OffloadCompletion> completions;
  for (const auto& [job, workers] : ordered.at("jobs").items()) {
    completions.push_back({OffloadJobId(std::stoull(job)), workers.get<int64_t>()});
  }
  OffloadArrivals arrivals;
  scheduler_->OnCompletions(completions, arrivals);
  checks_.Expect(calls_.Take(), op.at("calls"), "completions: calls");
  Json loaded = Json::array();
  for (const OffloadRequestId id : arrivals.loaded) loaded.push_back(names_.RequestName(id));
  std::sort(loaded.begin(), loaded.end());
  Json recorded = op.value("finished_recving", Json::array());  // in any order
  std::sort(recorded.begin(), recorded.end());
  checks_.Expect(loaded, recorded, "completions: finished_recving");
  MergeStats(scheduler_->TakeStats());
}

void OffloadRunReplay::ResetCache(const Json& op) {
  checks_.Expect(scheduler_->Reset().ok(), op.at("result"), "reset_cache");
  checks_.Expect(calls_.Take(), op.at("calls"), "reset_cache: calls");
  checks_.Expect(scheduler_->next_job().value, op.at("stale_job_threshold"),
                 "reset_cache: stale_job_threshold");
  checks_.Expect(Values(scheduler_->PendingFlush()), op.at("pending_flush"),
                 "reset_cache: pending_flush");
  checks_.Expect(scheduler_->num_requests(), op.at("live_requests").size(),
                 "reset_cache: live_requests");
}

Json OffloadRunReplay::ExpandTouches(const Json& calls) {
  Json expanded = calls;
  for (Json& call : expanded) {
    if (!call.contains("from")) continue;
    const size_t group = call.at("g");
    const int64_t hashes = scheduler_->layout().groups.at(group).hashes_per_chunk;
    const std::vector<Digest>& chain = Get(call.at("req")).cache.chain;
    std::vector<OffloadKey> keys;
    for (int64_t chunk = call.at("from"); chunk < call.at("to").get<int64_t>(); ++chunk) {
      keys.push_back({chain.at(static_cast<size_t>((chunk + 1) * hashes - 1)),
                      GroupIdx(static_cast<uint32_t>(group))});
    }
    call["keys"] = names_.Keys(keys);
    for (const char* field : {"g", "from", "to"}) call.erase(field);
  }
  return expanded;
}

Json OffloadRunReplay::JobJson(const OffloadJob& job) const {
  return {{"req", names_.RequestName(job.request)},
          {"gpu_block_ids", Values(job.gpu_blocks)},
          {"group_sizes", job.group_sizes},
          {"block_indices", job.block_indices},
          {"slots", OffloadNames::Slots(job.slots)}};
}

Json OffloadRunReplay::NextStored(OffloadRequestId id) const {
  const auto state = scheduler_->InspectRequest(id);
  return state ? Json(state->next_stored_chunk) : Json();
}

}  // namespace kvcast::tools
