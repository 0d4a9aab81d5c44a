// SPDX-License-Identifier: Apache-2.0
#include "kvcast/transfer/transfer_engine.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/transfer/transfer_lanes.h"

namespace kvcast {
namespace {

using transfer::JobState;

// Sleep time of the thread between polls of running copies, if the backend does not signal their
// end. It is a small part of the time of a batch.
constexpr int64_t kPollIntervalUs = 50;

Status Invalid(std::string field, const char* problem) {
  return {StatusCode::kInvalidArgument, std::move(field) + ": " + problem};
}

Status Validate(const TransferConfig& config) {
  if (config.groups.empty()) return Invalid("groups", "is empty");
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const std::string field = "groups[" + std::to_string(i) + "].";
    const TransferGroupConfig& group = config.groups[i];
    if (group.blocks_per_chunk == 0) return Invalid(field + "blocks_per_chunk", "must be positive");
    if (Status status = ValidateLayout(group.layout); !status.ok()) {
      return {status.code(), field + "layout." + status.message()};
    }
  }
  if (config.host.base == nullptr) return Invalid("host.base", "must not be null");
  if (config.host.slot_bytes == 0) return Invalid("host.slot_bytes", "must be positive");
  if (config.host.region_bytes % config.host.slot_bytes != 0) {
    return Invalid("host.region_bytes", "must be a multiple of host.slot_bytes");
  }
  if (config.max_batch_bytes == 0) return Invalid("max_batch_bytes", "must be positive");
  if (config.max_batch_ops == 0) return Invalid("max_batch_ops", "must be positive");
  if (config.batches_in_flight < 1) return Invalid("batches_in_flight", "must be positive");
  if (config.store_batches_beside_loads < 1) {
    return Invalid("store_batches_beside_loads", "must be positive");
  }
  return {};
}

}  // namespace

// Jobs arrive in incoming_ and leave through results_. A thread uses the lanes only while it holds
// pump_mutex_.
class TransferEngine::Impl {
 public:
  Impl(TransferConfig config, std::unique_ptr<CopyBackend> backend)
      : config_(std::move(config)), backend_(std::move(backend)), lanes_(config_, *backend_) {
    if (!config_.own_thread) return;
    ends_are_told_ = backend_->TellEnds([this] {
      {
        const MutexLock lock(mutex_);
        batch_ended_ = true;
      }
      work_.NotifyOne();
    });
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    if (thread_.joinable()) {
      {
        const MutexLock lock(mutex_);
        stopping_ = true;
      }
      work_.NotifyAll();
      thread_.join();
    }
    const MutexLock pump(pump_mutex_);
    lanes_.Abandon();
    backend_.reset();  // the threads of the backend may still signal the end of a batch
  }

  void Submit(const TransferJob& job) {
    {
      const MutexLock lock(mutex_);
      std::unique_ptr<JobState> state = Unused();
      state->Assign(job);
      under_way_.push_back(job.id);
      incoming_.push_back(std::move(state));
    }
    if (config_.own_thread) {
      work_.NotifyOne();
    } else {
      PumpHere();
    }
  }

  void Poll(std::vector<TransferResult>& results) {
    if (!config_.own_thread) PumpHere();
    const MutexLock lock(mutex_);
    std::move(results_.begin(), results_.end(), std::back_inserter(results));
    results_.clear();
  }

  void Wait(std::span<const TransferJobId> jobs) {
    WaitUntil([jobs](const std::vector<TransferJobId>& under_way) {
      return std::find_first_of(under_way.begin(), under_way.end(), jobs.begin(), jobs.end()) ==
             under_way.end();
    });
  }
  void WaitAll() {
    WaitUntil([](const std::vector<TransferJobId>& under_way) { return under_way.empty(); });
  }

  size_t jobs_under_way() const {
    const MutexLock lock(mutex_);
    return under_way_.size();
  }
  TransferStats stats() const {
    const MutexLock lock(mutex_);
    return stats_;
  }

 private:
  std::unique_ptr<JobState> Unused() KV_REQUIRES(mutex_) {
    if (unused_.empty()) return std::make_unique<JobState>();
    std::unique_ptr<JobState> state = std::move(unused_.back());
    unused_.pop_back();
    return state;
  }

  // Takes the new jobs, continues copies, and publishes the jobs that ended. True: anything
  // changed.
  bool PumpOnce() KV_REQUIRES(pump_mutex_) {
    {
      const MutexLock lock(mutex_);
      arrived_.swap(incoming_);
    }
    for (auto& job : arrived_) lanes_.Add(std::move(job));
    const bool any_arrived = !arrived_.empty();
    arrived_.clear();
    const bool changed = lanes_.Pump(ended_);
    if (changed) Publish();
    return changed || any_arrived;
  }

  void Publish() KV_REQUIRES(pump_mutex_) {
    {
      const MutexLock lock(mutex_);
      stats_ = lanes_.stats();
      for (auto& job : ended_) {
        results_.push_back({job->id, std::move(job->status)});
        std::erase(under_way_, job->id);
        unused_.push_back(std::move(job));
      }
    }
    if (!ended_.empty()) ended_signal_.NotifyAll();
    ended_.clear();
  }

  void PumpHere() {
    const MutexLock pump(pump_mutex_);
    while (PumpOnce()) {
    }
  }

  // Waits until done(jobs in progress) is true.
  template <typename Done>
  void WaitUntil(const Done& done) {
    if (config_.own_thread) {
      const MutexLock lock(mutex_);
      while (!done(under_way_)) ended_signal_.Wait(mutex_);
      return;
    }
    const auto is_done = [&] {
      const MutexLock lock(mutex_);
      return done(under_way_);
    };
    const MutexLock pump(pump_mutex_);
    while (!is_done()) {
      if (!PumpOnce()) lanes_.WaitForOldest();
    }
  }

  void Run() {
    for (;;) {
      bool changed = false;
      bool idle = false;
      {
        const MutexLock pump(pump_mutex_);
        changed = PumpOnce();
        idle = lanes_.idle();
      }
      const MutexLock lock(mutex_);
      if (stopping_) return;
      const bool again = changed || !incoming_.empty() || batch_ended_;
      batch_ended_ = false;
      if (again) continue;
      if (idle || ends_are_told_) {
        work_.Wait(mutex_);
      } else {
        work_.WaitUntil(mutex_, SteadyUs() + kPollIntervalUs);
      }
    }
  }

  const TransferConfig config_;
  std::unique_ptr<CopyBackend> backend_;
  bool ends_are_told_ = false;

  Mutex pump_mutex_;
  transfer::TransferLanes lanes_ KV_GUARDED_BY(pump_mutex_);
  std::vector<std::unique_ptr<JobState>> arrived_ KV_GUARDED_BY(pump_mutex_);  // scratch memory
  std::vector<std::unique_ptr<JobState>> ended_ KV_GUARDED_BY(pump_mutex_);    // scratch memory

  mutable Mutex mutex_;  // locked after pump_mutex_
  CondVar work_;
  CondVar ended_signal_;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  bool batch_ended_ KV_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<JobState>> incoming_ KV_GUARDED_BY(mutex_);
  std::vector<TransferJobId> under_way_ KV_GUARDED_BY(mutex_);
  std::vector<TransferResult> results_ KV_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<JobState>> unused_ KV_GUARDED_BY(mutex_);
  TransferStats stats_ KV_GUARDED_BY(mutex_);

  std::thread thread_;
};

TransferEngine::TransferEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TransferEngine::~TransferEngine() = default;

Result<std::unique_ptr<TransferEngine>> TransferEngine::Create(
    TransferConfig config, std::unique_ptr<CopyBackend> backend) {
  if (backend == nullptr) return Invalid("backend", "must not be null");
  if (Status status = Validate(config); !status.ok()) return status;
  return std::unique_ptr<TransferEngine>(
      new TransferEngine(std::make_unique<Impl>(std::move(config), std::move(backend))));
}

void TransferEngine::Submit(const TransferJob& job) { impl_->Submit(job); }
void TransferEngine::Poll(std::vector<TransferResult>& results) { impl_->Poll(results); }
void TransferEngine::Wait(std::span<const TransferJobId> jobs) { impl_->Wait(jobs); }
void TransferEngine::WaitAll() { impl_->WaitAll(); }
size_t TransferEngine::jobs_under_way() const { return impl_->jobs_under_way(); }
TransferStats TransferEngine::stats() const { return impl_->stats(); }

}  // namespace kvcast
