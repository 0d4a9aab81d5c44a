// SPDX-License-Identifier: Apache-2.0
#include "tests/content/copies.h"

#include <gtest/gtest.h>

#include <utility>

#include "kvcast/transfer/host_copy_backend.h"

namespace kvcast::content {

Copies::Copies(const RunConfig& config, std::vector<TransferGroupConfig> groups, HostLayout host,
               GpuStream& stream)
    : config_(config), stream_(stream), random_(config.seed * 31 + 7) {
  TransferConfig transfer;
  transfer.groups = std::move(groups);
  transfer.host = host;
  // A job may have several batches, and a job may wait for batches of other jobs.
  const size_t ops[] = {1, 3, 16, 512};
  transfer.max_batch_ops = ops[random_() % 4];
  transfer.batches_in_flight = static_cast<int>(1 + random_() % 6);
  transfer.own_thread = config.threads;
  std::unique_ptr<CopyBackend> backend;
  if (config.threads) {
    backend = MakeHostCopyBackend({.threads = 2}).value();
  } else {
    auto deferred = std::make_unique<testing::DeferredBackend>();
    backend_ = deferred.get();
    backend_->reach = [this](void* event) { stream_.RunUntil(event); };
    backend = std::move(deferred);
  }
  auto engine = TransferEngine::Create(transfer, std::move(backend));
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  engine_ = std::move(engine).value();
}

void Copies::Submit(TransferJob job) {
  // The host backend cannot wait for an event of the device, so the computation runs first.
  if (config_.threads) stream_.RunAll();
  const bool no_event = config_.threads || config_.fault == Fault::kNoEvent;
  job.after = no_event ? nullptr : stream_.Event();
  engine_->Submit(job);
}

void Copies::AdvanceBatch(size_t index) {
  const auto& batch = backend_->batches[index];
  if (batch.state != CopyState::kRunning) return;
  if (!stream_.HasReached(batch.after) && Chance(60)) return;
  if (IsStuck(index)) return;
  if (config_.fault == Fault::kReportedEarly && Chance(30)) return ReportEarly(index);
  if (Chance(35)) return backend_->Move(index);
  if (Chance(4)) return backend_->Fail(index);
  if (batch.moved && Chance(50)) {
    backend_->batches[index].state = CopyState::kDone;
  } else {
    backend_->Finish(index);
  }
}

// A stuck batch ends after a limited time, but the engine may treat the batch as stuck forever. The
// batch may write at any time before its end.
bool Copies::IsStuck(size_t index) {
  const auto& batch = backend_->batches[index];
  if (batch.direction != CopyDirection::kLoad || config_.late_load_ms == 0) return false;
  if (!stuck_.contains(batch.ticket)) stuck_[batch.ticket] = Chance(5) ? progress_ + 150 : 0;
  if (stuck_[batch.ticket] < progress_) return false;
  if (Chance(35)) backend_->Move(index);
  return true;
}

void Copies::ReportEarly(size_t index) {
  auto& batch = backend_->batches[index];
  stream_.RunUntil(batch.after);
  delayed_.insert(delayed_.end(), batch.ops.begin(), batch.ops.end());
  batch.state = CopyState::kDone;
}

void Copies::RunDelayedCopies() {
  for (const CopyOp& op : std::exchange(delayed_, {})) testing::DeferredBackend::Run(op);
}

void Copies::Progress() {
  if (backend_ == nullptr) return;
  ++progress_;
  if (Chance(3)) backend_->refuse_next = 1;
  if (Chance(20)) RunDelayedCopies();
  for (size_t i = 0; i < backend_->batches.size(); ++i) {
    if (Chance(25)) AdvanceBatch(random_() % backend_->batches.size());
  }
}

void Copies::Wait(std::span<const TransferJobId> jobs) {
  Progress();
  engine_->Wait(jobs);
}

void Copies::EndAll() {
  engine_->WaitAll();
  RunDelayedCopies();
}

std::vector<TransferResult> Copies::TakeEnded() {
  std::vector<TransferResult> results;
  engine_->Poll(results);
  return results;
}

}  // namespace kvcast::content
