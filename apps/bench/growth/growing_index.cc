// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/growing_index.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/bench/index/fleet.h"
#include "src/base/clock.h"

namespace kvcast::bench {
namespace {

double ThreadNanoseconds() { return static_cast<double>(ThreadCpuNs()); }

int64_t ThreadFaults() {
  struct rusage usage {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

int64_t TokensOf(uint64_t blocks) { return static_cast<int64_t>(blocks) * kBlockTokens; }

}  // namespace

Status GrowingIndex::AddWorkers() {
  for (uint64_t worker = 0; worker < content_.workers(); ++worker) {
    const WorkerId id(static_cast<uint32_t>(worker));
    if (Status status = index_.AddWorker(id, FleetWorker(1)); !status.ok()) return status;
  }
  return {};
}

Result<uint64_t> GrowingIndex::CountedResidencies() const {
  uint64_t residencies = 0;
  for (uint64_t worker = 0; worker < content_.workers(); ++worker) {
    const IndexCounters counters = index_.counters(WorkerId(static_cast<uint32_t>(worker)));
    residencies += counters.residencies;
    if (counters.unknown_removes + counters.bad_events + counters.bad_stores +
            counters.reannounced_blocks + counters.unnamed !=
        0) {
      return Status(StatusCode::kInternal,
                    "the index did not apply all events of worker " + std::to_string(worker));
    }
  }
  if (residencies == held()) return residencies;
  return Status(StatusCode::kInternal, "the index counts " + std::to_string(residencies) +
                                           " residencies, not " + std::to_string(held()));
}

void GrowingIndex::Apply(const WorkerBatch& batch, ApplyCost& cost) {
  const int64_t faults = ThreadFaults();
  const double cpu = ThreadNanoseconds();
  const auto start = Clock::now();
  index_.Apply(batch.worker, batch.batch);
  const double ns = NanosecondsSince(start);
  const double cpu_ns = ThreadNanoseconds() - cpu;
  if (cpu_ns > cost.longest_cpu_ns) {
    cost.longest_cpu_ns = cpu_ns;
    cost.longest_faults = ThreadFaults() - faults;
  }
  cost.longest_ns = std::max(cost.longest_ns, ns);
  cost.ns += ns;
  cost.blocks += BlocksIn({&batch, 1});
}

void GrowingIndex::StoreSystems(WorkerId worker, ApplyCost& cost) {
  for (uint64_t system = 0; system < Conversations::kSystems; ++system) {
    Apply(batches_.StoreSystem(worker, system), cost);
  }
}

GrowingIndex::ApplyCost GrowingIndex::Grow(uint64_t pairs, const IsFull& is_full) {
  ApplyCost cost;
  for (uint64_t worker = 0; !has_systems_ && worker < content_.workers(); ++worker) {
    StoreSystems(WorkerId(static_cast<uint32_t>(worker)), cost);
  }
  has_systems_ = true;
  do {
    ApplyWave(false, cost);
  } while (held() + content_.wave_residencies() / 2 < pairs && !is_full());
  return cost;
}

GrowingIndex::ApplyCost GrowingIndex::Replace(uint64_t blocks, const IsFull& is_full) {
  ApplyCost cost;
  do {
    ApplyWave(true, cost);
  } while (cost.blocks < blocks && !is_full());
  return cost;
}

void GrowingIndex::ApplyWave(bool evicts, ApplyCost& cost) {
  const double ns = cost.ns;
  const uint64_t blocks = cost.blocks;
  for (uint64_t step = 0; step < content_.steps(); ++step) {
    if (evicts) Apply(batches_.Evict(begin_, step), cost);
    Apply(batches_.Store(end_, step), cost);
  }
  if (evicts) ++begin_;
  ++end_;
  cost.wave_ns.Add((cost.ns - ns) / static_cast<double>(cost.blocks - blocks));
}

GrowingIndex::QueryResults GrowingIndex::Ask(uint64_t queries) {
  constexpr uint64_t kAskedBlocks = Conversations::kPromptBlocks + Conversations::kTurnBlocks;
  QueryResults results;
  results.ns.Reserve(queries);
  std::vector<uint64_t> chain(kAskedBlocks);
  for (uint64_t i = 0; i < queries; ++i, ++asked_) {
    const bool next_turn = i % 4 != 3;
    const uint64_t conversation =
        begin_ * content_.conversations() + Mix64(asked_) % (waves() * content_.conversations());
    const uint64_t held = next_turn ? Conversations::kPromptBlocks : Conversations::kSharedBlocks;
    chain.resize(held + Conversations::kTurnBlocks);
    for (uint64_t k = 0; k < chain.size(); ++k) {
      chain[k] = k < held ? content_.HashOf(conversation, k)
                          : Conversations::UnheldHash(asked_ * kAskedBlocks + k);
    }
    const PromptBlocks prompt{.hash_block_size = kBlockTokens,
                              .prompt_tokens = TokensOf(chain.size()) + 1,
                              .integer_hashes = chain};
    const auto start = Clock::now();
    const std::vector<WorkerMatch> matches = index_.Match(prompt);
    results.ns.Add(NanosecondsSince(start));
    if (!IsRight(matches, conversation, next_turn)) ++results.wrong;
  }
  return results;
}

bool GrowingIndex::IsRight(std::span<const WorkerMatch> matches, uint64_t conversation,
                           bool next_turn) const {
  if (matches.size() != content_.workers()) return false;
  const WorkerId worker = content_.WorkerOf(conversation);
  uint64_t holders = 0;  // of the project's text
  for (const WorkerMatch& match : matches) {
    const int64_t tokens = match.gpu_tokens;
    if (tokens > TokensOf(Conversations::kSystemBlocks)) ++holders;
    if (match.worker == worker) {
      const uint64_t held = next_turn ? Conversations::kPromptBlocks : Conversations::kSharedBlocks;
      if (tokens != TokensOf(held)) return false;
    } else if (tokens != TokensOf(Conversations::kSystemBlocks) &&
               tokens != TokensOf(Conversations::kSharedBlocks)) {
      return false;
    }
  }
  return holders == Conversations::kHolders;
}

Result<ReclaimPause> GrowingIndex::MeasureLeave() {
  const WorkerId leaver(static_cast<uint32_t>(content_.workers()));
  const WorkerId prober(leaver.value + 1);
  for (const WorkerId id : {leaver, prober}) {
    if (Status status = index_.AddWorker(id, FleetWorker(1)); !status.ok()) return status;
  }
  ApplyCost unused;
  StoreSystems(leaver, unused);
  const uint64_t first = (end_ - 1) * content_.conversations();
  for (uint64_t project = 0; project < content_.workers(); ++project) {
    Apply(batches_.StoreCopy(leaver, first + project), unused);
  }
  const ReclaimPause pause = MeasureReclaim(index_, leaver, prober);
  index_.RemoveWorker(prober);
  while (index_.Reclaim()) {
  }
  return pause;
}

}  // namespace kvcast::bench
