// Copies: the TransferEngine of a run, and the whims of the device below it.
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
  // `layouts` by group of the transfer engine. All must outlive this.
  Copies(const RunConfig& config, std::vector<TransferGroupConfig> groups, HostLayout host,
         GpuStream& stream);

  // When all that was submitted to the stream is done.
  void Submit(TransferJob job);
  // Blocks until these have ended; some may fail.
  void Wait(std::span<const TransferJobId> jobs);
  // Something happens to some of the batches.
  void Progress();
  void EndAll();
  std::vector<TransferResult> TakeEnded();
  bool idle() const { return engine_->jobs_under_way() == 0; }

 private:
  void Touch(size_t at);
  bool IsStuck(size_t at);
  void ReportEarly(size_t at);
  void MoveLate();
  bool Chance(int percent) { return std::uniform_int_distribution<int>(0, 99)(random_) < percent; }

  const RunConfig& config_;
  GpuStream& stream_;
  std::mt19937_64 random_;
  testing::DeferredBackend* backend_ = nullptr;  // none with threads
  std::unique_ptr<TransferEngine> engine_;
  std::map<CopyTicket, int64_t> stuck_;  // loads, until when
  int64_t progress_ = 0;
  std::vector<CopyOp> late_;  // of batches that were reported early
};

}  // namespace kvcast::content
