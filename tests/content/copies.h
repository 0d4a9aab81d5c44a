// Copies: the TransferEngine of a run, and the random behaviour of its device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "kvcast/transfer/transfer_engine.h"
#include "tests/content/gpu_stream.h"
#include "tests/content/run_config.h"
#include "tests/support/deferred_backend.h"

namespace kvcast::content {

class Copies {
 public:
  // `groups`: groups of the transfer engine. `config`, `stream` and the memory of `groups` and
  // `host` must outlive this object.
  Copies(const RunConfig& config, std::vector<TransferGroupConfig> groups, HostLayout host,
         GpuStream& stream);

  // The job starts after all work that was submitted to the stream so far.
  void Submit(TransferJob job);
  // Blocks until these jobs have ended. Some jobs may fail.
  void Wait(std::span<const TransferJobId> jobs);
  // Advances some batches at random.
  void Progress();
  void EndAll();
  std::vector<TransferResult> TakeEnded();
  bool idle() const { return engine_->jobs_under_way() == 0; }

 private:
  void AdvanceBatch(size_t index);
  bool IsStuck(size_t index);
  void ReportEarly(size_t index);
  void RunDelayedCopies();
  bool Chance(int percent) { return std::uniform_int_distribution<int>(0, 99)(random_) < percent; }

  const RunConfig& config_;
  GpuStream& stream_;
  std::mt19937_64 random_;
  testing::DeferredBackend* backend_ = nullptr;  // nullptr if RunConfig::threads is true
  std::unique_ptr<TransferEngine> engine_;
  // For each batch of a load: the last value of progress_ at which the batch is stuck. 0: the batch
  // is never stuck.
  std::map<CopyTicket, int64_t> stuck_;
  int64_t progress_ = 0;
  std::vector<CopyOp> delayed_;  // copies that run after their batch was reported as done
};

}  // namespace kvcast::content
