// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/selector.h"

#include <algorithm>
#include <tuple>

namespace kvcast {
namespace {

bool IsAllowed(WorkerId worker, std::span<const WorkerId> allowed) {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), worker) != allowed.end();
}

bool Better(const Choice& a, const Choice& b) {
  return std::tuple(a.cost, -a.reusable_tokens, a.worker) <
         std::tuple(b.cost, -b.reusable_tokens, b.worker);
}

}  // namespace

TokenLoadCosts CostsOfLoads(const LoadCosts& measured, const CostWeights& weights) {
  TokenLoadCosts costs{measured.cpu.value_or(weights.load_token),
                       measured.storage.value_or(weights.load_storage_token)};
  costs.storage = std::max(costs.storage, costs.cpu);
  return costs;
}

double FleetCost(const Candidate& candidate, const CostWeights& weights, double delay) {
  const double later = candidate.compute_s * (2 * candidate.queue_s + candidate.compute_s);
  return weights.work * candidate.compute_s + weights.later * delay * later -
         weights.partial * candidate.partial_s + weights.eviction * candidate.eviction_s;
}

double Cost(const Candidate& candidate, const CostWeights& weights, double delay) {
  return candidate.queue_s + candidate.load_s + candidate.compute_s +
         FleetCost(candidate, weights, delay);
}

std::optional<Choice> SelectWorker(std::span<const Candidate> candidates,
                                   const CostWeights& weights, double delay,
                                   std::span<const WorkerId> allowed) {
  std::optional<Choice> best;
  for (const Candidate& candidate : candidates) {
    if (!IsAllowed(candidate.worker, allowed)) continue;
    const Choice choice{candidate.worker, Cost(candidate, weights, delay),
                        candidate.reusable_tokens, candidate.speculative_tokens};
    if (!best || Better(choice, *best)) best = choice;
  }
  return best;
}

std::optional<WorkerId> RoundRobin::Next(std::span<const Candidate> candidates,
                                         std::span<const WorkerId> allowed) {
  std::optional<WorkerId> lowest;
  std::optional<WorkerId> next;
  for (const Candidate& candidate : candidates) {
    const WorkerId id = candidate.worker;
    if (!IsAllowed(id, allowed)) continue;
    if (!lowest || id < *lowest) lowest = id;
    if (last_ && id > *last_ && (!next || id < *next)) next = id;
  }
  const std::optional<WorkerId> chosen = next ? next : lowest;
  if (chosen) last_ = chosen;
  return chosen;
}

}  // namespace kvcast
