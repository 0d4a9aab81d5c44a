// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_audit.h"

#include <algorithm>
#include <iterator>

#include "src/base/check.h"

namespace kvcast::tools {
namespace {

constexpr WorkerId kOnlyWorker{0};  // each audited worker has its own index

}  // namespace

ExactnessAudit::ExactnessAudit(size_t workers, const WorkerConfig& config, int64_t hash_block_size)
    : hash_block_size_(hash_block_size),
      lookahead_(config.hash_lookahead_tokens),
      arrived_(workers) {
  for (size_t i = 0; i < workers; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    KV_CHECK(workers_.back()->index.AddWorker(kOnlyWorker, config).ok());
  }
}

void ExactnessAudit::OnBatch(size_t worker, uint64_t seq, std::shared_ptr<const EventBatch> batch) {
  const MutexLock lock(mutex_);
  if (!batch->events.empty()) ++batches_;  // heartbeats have no events
  Arrived& arrived = arrived_[worker];
  // After a lost or repeated batch, the later admissions of the worker stay pending. Pending
  // admissions never count as equal.
  arrived.in_order = arrived.in_order && seq == arrived.next_seq;
  if (!arrived.in_order) return;
  ++arrived.next_seq;
  arrived.batches.push_back(std::move(batch));
}

void ExactnessAudit::OnAdmission(size_t worker, AuditedAdmission admission) {
  workers_[worker]->admissions.push_back(std::move(admission));
  Advance(worker);
}

int64_t ExactnessAudit::CompareWaiting() {
  int64_t waiting = 0;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Advance(i);
    waiting += std::ssize(workers_[i]->admissions);
  }
  return waiting;
}

void ExactnessAudit::Advance(size_t number) {
  Worker& worker = *workers_[number];
  {
    const MutexLock lock(mutex_);
    Batches& arrived = arrived_[number].batches;
    std::ranges::move(arrived, std::back_inserter(worker.batches));
    arrived.clear();
  }
  while (!worker.admissions.empty()) {
    const AuditedAdmission& next = worker.admissions.front();
    while (worker.applied < next.published && !worker.batches.empty()) {
      worker.index.Apply(kOnlyWorker, *worker.batches.front());
      worker.batches.pop_front();
      ++worker.applied;
    }
    if (worker.applied < next.published) return;
    Compare(worker, next);
    worker.admissions.pop_front();
  }
}

void ExactnessAudit::Compare(Worker& worker, const AuditedAdmission& admission) {
  int64_t on_gpu = -1;
  int64_t with_cpu = -1;
  PromptBlocks prompt = {.hash_block_size = hash_block_size_,
                         .prompt_tokens = admission.total_tokens,
                         .lookahead = lookahead_};
  if (admission.names.contents) prompt.contents = *admission.names.contents;
  if (admission.names.chain) prompt.hashes = *admission.names.chain;
  const auto matches = worker.index.Match(prompt);
  if (!matches.empty()) {
    on_gpu = matches.front().gpu_tokens;
    with_cpu = matches.front().with_cpu_tokens;
  }
  const int64_t served = admission.hit_tokens + admission.loaded_tokens;
  ++worker.totals.compared;
  if (on_gpu == admission.hit_tokens && with_cpu == served) {
    ++worker.totals.equal;
    return;
  }
  const bool gpu_differs = on_gpu != admission.hit_tokens;
  const int64_t predicted = gpu_differs ? on_gpu : with_cpu;
  const int64_t engine_tokens = gpu_differs ? admission.hit_tokens : served;
  worker.totals.over_tokens += std::max<int64_t>(predicted - engine_tokens, 0);
  worker.totals.under_tokens += std::max<int64_t>(engine_tokens - predicted, 0);
  if (worker.totals.first_difference.empty()) {
    worker.totals.first_difference = "request " + std::to_string(admission.request) + " after " +
                                     std::to_string(admission.published) + " batches" +
                                     (gpu_differs ? ": index " : " with host memory: index ") +
                                     std::to_string(predicted) + " tokens, engine " +
                                     std::to_string(engine_tokens) + " tokens";
  }
  if (first_difference_.empty()) first_difference_ = worker.totals.first_difference;
}

uint64_t ExactnessAudit::batches() const {
  const MutexLock lock(mutex_);
  return batches_;
}

AuditTotals ExactnessAudit::totals() const {
  AuditTotals sum;
  for (const auto& worker : workers_) {
    sum.compared += worker->totals.compared;
    sum.equal += worker->totals.equal;
    sum.over_tokens += worker->totals.over_tokens;
    sum.under_tokens += worker->totals.under_tokens;
  }
  sum.first_difference = first_difference_;
  return sum;
}

AuditTotals ExactnessAudit::totals(size_t worker) const { return workers_[worker]->totals; }

}  // namespace kvcast::tools
