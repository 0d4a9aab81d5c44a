// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/scenario/scenario_wire.h"

#include <utility>
#include <variant>

namespace kvcast::tools {
namespace {

// The time stamp of the first recorded step.
constexpr double kFirstStepTime = 1'700'000'000;
constexpr double kStepSeconds = 0.25;

}  // namespace

Dialect DialectOf(const ScenarioConfig& config, const std::vector<Event>& events) {
  if (config.cache.rules >= EngineRules::kV033) return Dialect::kVllm12;
  if (!config.array_events) return Dialect::kVllm10;
  if (config.cache.rules == EngineRules::kMain2026May) return Dialect::kVllm8;
  for (const Event& event : events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    const auto* removed = std::get_if<BlockRemoved>(&event);
    if (stored != nullptr && stored->group_idx) return Dialect::kVllm7;
    if (removed != nullptr && removed->group_idx) return Dialect::kVllm7;
  }
  return Dialect::kVllm6;
}

EventBatch BatchOf(const ScenarioConfig& config, const ScenarioStep& step,
                   std::vector<Event> events) {
  EventBatch batch;
  batch.ts = kFirstStepTime + static_cast<double>(step.step) * kStepSeconds;
  batch.events = std::move(events);
  batch.data_parallel_rank = config.data_parallel_rank;
  return batch;
}

Result<std::vector<Event>> EventsOverWire(const ScenarioConfig& config, const ScenarioStep& step) {
  std::vector<uint8_t> payload(step.payload.begin(), step.payload.end());
  if (payload.empty()) {
    const EventBatch batch = BatchOf(config, step, step.events);
    const Status encoded = EncodeBatch(batch, DialectOf(config, step.events), payload);
    if (!encoded.ok()) return encoded;
  }
  EventBatch batch;
  DecodeCounts counts;
  if (const Status decoded = DecodeBatch(payload, WireLimits(), batch, counts); !decoded.ok()) {
    return decoded;
  }
  if (counts.rejected_total() > 0) return Status(StatusCode::kMalformed, "an event was refused");
  return std::move(batch.events);
}

}  // namespace kvcast::tools
