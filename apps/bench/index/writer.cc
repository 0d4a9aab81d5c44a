// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/writer.h"

#include <chrono>

#include "apps/support/samples.h"

namespace kvcast::bench {

Writer::Writer(const Churn& churn, PrefixIndex& index)
    : churn_(churn), index_(index), turn_(churn.steady_turn()) {}

Writer::~Writer() { Stop(); }

void Writer::Start(double rate) {
  stopping_ = false;
  thread_ = std::thread([this, rate] { Run(rate); });
}

double Writer::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  return reached_;
}

void Writer::Run(double rate) {
  TurnBatches batches(churn_, Removes::kEach);
  const auto start = Clock::now();
  int64_t done = 0;
  while (!stopping_) {
    const Churn::Turn turn = churn_.At(turn_.load(std::memory_order_relaxed));
    for (const EventBatch& batch : batches.Make(turn)) index_.Apply(turn.worker, batch);
    turn_.fetch_add(1, std::memory_order_release);
    done += batches.ops(turn);
    if (rate > 0) {
      std::this_thread::sleep_until(
          start + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(static_cast<double>(done) / rate)));
    }
  }
  reached_ = static_cast<double>(done) / (NanosecondsSince(start) * 1e-9);
}

}  // namespace kvcast::bench
