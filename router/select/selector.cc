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
  TokenLoadCosts costs{weights.load_token, weights.load_storage_token};
  if (measured.cpu) costs.cpu = weights.recompute_token * *measured.cpu;
  if (measured.storage) costs.storage = weights.recompute_token * *measured.storage;
  costs.storage = std::max(costs.storage, costs.cpu);
  return costs;
}

double Cost(const Candidate& candidate, int64_t prompt_tokens, const CostWeights& weights) {
  const int64_t reusable = std::max(candidate.reusable_tokens, candidate.speculative_tokens);
  const int64_t on_gpu = std::clamp<int64_t>(reusable, 0, prompt_tokens);
  const int64_t upto_cpu = std::clamp<int64_t>(candidate.with_cpu_tokens, on_gpu, prompt_tokens);
  const int64_t upto_storage =
      std::clamp<int64_t>(candidate.with_storage_tokens, upto_cpu, prompt_tokens);
  const int64_t recompute = prompt_tokens - upto_storage;
  const int64_t resident = std::clamp<int64_t>(candidate.resident_tokens, 0, prompt_tokens);
  const int64_t beyond = std::max<int64_t>(resident - upto_storage, 0);
  const TokenLoadCosts load_costs = CostsOfLoads(candidate.load_costs, weights);
  return weights.recompute_token * static_cast<double>(recompute) +
         load_costs.cpu * static_cast<double>(upto_cpu - on_gpu) +
         load_costs.storage * static_cast<double>(upto_storage - upto_cpu) +
         weights.active_prefill_token * static_cast<double>(candidate.load.active_prefill_tokens) +
         weights.decode_block * static_cast<double>(candidate.load.decode_blocks) +
         weights.queued_request * static_cast<double>(candidate.load.queued_requests) -
         weights.affinity_token * static_cast<double>(beyond);
}

std::optional<Choice> SelectWorker(std::span<const Candidate> candidates, int64_t prompt_tokens,
                                   const CostWeights& weights, std::span<const WorkerId> allowed) {
  std::optional<Choice> best;
  for (const Candidate& candidate : candidates) {
    if (!IsAllowed(candidate.worker, allowed)) continue;
    const Choice choice{candidate.worker, Cost(candidate, prompt_tokens, weights),
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
