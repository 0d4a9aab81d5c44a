// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/fleet.h"

#include <string>

#include "apps/support/samples.h"

namespace kvcast::bench {

WorkerConfig FleetWorker(int64_t groups) {
  WorkerConfig config{.name = "worker"};
  for (int64_t group = 0; group < groups; ++group) {
    GroupSpec spec{.block_size = kBlockTokens};
    if (group > 0) {
      spec.kind = SpecKind::kSlidingWindow;
      spec.sliding_window = 1024;
    }
    config.groups.push_back(spec);
  }
  return config;
}

Status AddFleet(const ChurnConfig& config, PrefixIndex& index) {
  for (int64_t worker = 0; worker < config.workers; ++worker) {
    const WorkerId id(static_cast<uint32_t>(worker));
    if (Status status = index.AddWorker(id, FleetWorker(config.groups)); !status.ok()) {
      return status;
    }
  }
  return {};
}

double FillIndex(const Churn& churn, PrefixIndex& index) {
  TurnBatches batches(churn, Removes::kMerged);
  double nanoseconds = 0;
  for (uint64_t turn = 0; turn < churn.steady_turn(); ++turn) {
    const Churn::Turn now = churn.At(turn);
    const std::vector<EventBatch>& turn_batches = batches.Make(now);
    const auto start = Clock::now();
    for (const EventBatch& batch : turn_batches) index.Apply(now.worker, batch);
    nanoseconds += NanosecondsSince(start);
  }
  return nanoseconds * 1e-9;
}

Status CheckFleet(const Churn& churn, const PrefixIndex& index) {
  const auto failure = [](const std::string& detail) {
    return Status(StatusCode::kInternal, "the index did not apply all events: " + detail);
  };
  uint64_t residencies = 0;
  for (int64_t worker = 0; worker < churn.config().workers; ++worker) {
    const IndexCounters counters = index.counters(WorkerId(static_cast<uint32_t>(worker)));
    residencies += counters.residencies;
    if (counters.unknown_removes > 0)
      return failure("it ignored removes of blocks that a worker does not hold");
    if (counters.bad_events + counters.bad_stores + counters.unknown_kinds > 0) {
      return failure("it refused events");
    }
    if (counters.reannounced_blocks > 0) return failure("it ignored stores as repeated");
  }
  const uint64_t expected = churn.residencies() * static_cast<uint64_t>(churn.config().groups);
  if (residencies == expected) return {};
  return failure("it has " + std::to_string(residencies) + " residencies; the expected number is " +
                 std::to_string(expected));
}

}  // namespace kvcast::bench
