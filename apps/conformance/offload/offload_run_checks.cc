// Checks the state that a recorded step contains: statistics, events and host memory.
// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_run_replay.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

Json Values(const std::vector<OffloadJobId>& jobs) {
  Json list = Json::array();
  for (const OffloadJobId job : jobs) list.push_back(job.value);
  return list;
}

std::string HexOf(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

}  // namespace

// The engine takes its statistics when outputs arrive: never, once or twice in a step. If all
// statistics are 0, the engine does not send them. A recorded gauge is the value that the engine
// sent most recently. A recorded counter is the sum over the step.
void OffloadRunReplay::MergeStats(const OffloadSchedulerStats& taken) {
  const OffloadStats& memory = taken.memory;
  if (memory.usage != 0 || memory.allocation_sizes.count + memory.stores_skipped != 0 ||
      taken.allocation_failures != 0) {
    stats_.memory.usage = memory.usage;
    stats_.memory.write_usage = memory.write_usage;
    stats_.memory.read_usage = memory.read_usage;
  }
  stats_.memory.stores_skipped += taken.memory.stores_skipped;
  stats_.allocation_failures += taken.allocation_failures;
  AllocationSizes& sizes = stats_.memory.allocation_sizes;
  for (size_t i = 0; i < sizes.counts.size(); ++i) {
    sizes.counts[i] += taken.memory.allocation_sizes.counts[i];
  }
  sizes.count += taken.memory.allocation_sizes.count;
  sizes.sum += taken.memory.allocation_sizes.sum;
}

void OffloadRunReplay::CheckStep(const Json& step) {
  CheckStats(step.value("stats", Json::object()));
  // If the step has no cpu_events, the engine did not take its events in this step.
  if (step.contains("cpu_events")) CheckEvents(step);
  const OffloadManager::State state = scheduler_->manager().Inspect();
  checks_.Expect(
      {state.slots_used_once, state.free_slots.size(), state.evictable_slots, state.storing_slots},
      step.at("cpu"), "cpu");
  checks_.Expect(Values(scheduler_->JobsInFlight()), step.at("jobs_in_flight"), "jobs_in_flight");
  checks_.Expect(scheduler_->num_requests(), step.at("tracked_requests"), "tracked_requests");
}

void OffloadRunReplay::CheckStats(const Json& recorded) {
  const OffloadSchedulerStats stats = std::exchange(stats_, {});
  checks_.Expect(stats.memory.usage, recorded.value("cpu_cache_usage_perc", 0.0), "usage");
  checks_.Expect(stats.memory.write_usage, recorded.value("cpu_cache_write_usage_perc", 0.0),
                 "write usage");
  checks_.Expect(stats.memory.read_usage, recorded.value("cpu_cache_read_usage_perc", 0.0),
                 "read usage");
  checks_.Expect(stats.memory.stores_skipped, recorded.value("stores_skipped", 0),
                 "stores_skipped");
  checks_.Expect(stats.allocation_failures, recorded.value("allocation_failure", 0),
                 "allocation_failure");
  AllocationSizes sizes;
  for (const int64_t size : recorded.value("cpu_allocation_size", Json::array())) sizes.Add(size);
  checks_.Check(stats.memory.allocation_sizes == sizes, "cpu_allocation_size differs");
}

void OffloadRunReplay::CheckEvents(const Json& step) {
  EventBatch batch;
  constexpr double kStart = 1700000000;
  batch.ts = kStart + step.at("step").get<double>() / 4;
  batch.data_parallel_rank = 0;
  batch.events = scheduler_->TakeEvents();
  Json events = Json::array();
  for (const Event& event : batch.events) {
    events.push_back(names_.EventJson(event, literal_tokens_));
  }
  checks_.Expect(events, step.at("cpu_events"), "cpu_events");
  if (!step.contains("cpu_payload_hex")) return;
  std::vector<uint8_t> payload;
  const Status status = EncodeBatch(batch, Dialect::kVllm10, payload);
  checks_.Check(status.ok() && HexOf(payload) == step.at("cpu_payload_hex").get<std::string>(),
                "cpu_payload_hex differs: " + HexOf(payload));
}

void OffloadRunReplay::CheckFinal(const Json& recorded) {
  const OffloadManager::State state = scheduler_->manager().Inspect();
  Json idle = Json::array();
  Json t1 = Json::array();
  Json t2 = Json::array();
  for (const OffloadManager::Chunk& chunk : state.chunks) {
    const Json key = names_.Key(chunk.key);
    if (chunk.readers == 0) idle.push_back(key);
    (std::ssize(t1) < state.t1_chunks ? t1 : t2).push_back(key);
  }
  if (recorded.contains("evictable")) {
    checks_.Expect(idle, recorded.at("evictable"), "final: evictable");
    return;
  }
  checks_.Expect(t1, recorded.at("t1"), "final: t1");
  checks_.Expect(t2, recorded.at("t2"), "final: t2");
  checks_.Expect(names_.Keys(state.ghosts_t1), recorded.at("b1"), "final: b1");
  checks_.Expect(names_.Keys(state.ghosts_t2), recorded.at("b2"), "final: b2");
  checks_.Expect(state.t1_target, recorded.at("p"), "final: p");
}

}  // namespace kvcast::tools
