// SPDX-License-Identifier: Apache-2.0
#include "kvcast/transfer/host_copy_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/mutex.h"
#include "src/transfer/stream_copy.h"

namespace kvcast {
namespace {

constexpr int kMaxThreads = 256;
// Amount of work that a thread takes in one step. It is so large that the lock costs little in
// comparison, and so small that all threads end at about the same time.
constexpr size_t kPieceBytes = size_t{1} << 20;

struct Batch {
  CopyTicket ticket;
  std::vector<CopyOp> ops;
  std::vector<size_t> piece_ends;  // one past the last op of each piece
  size_t pieces_taken = 0;
  size_t pieces_done = 0;

  bool has_work() const { return pieces_taken < piece_ends.size(); }
  bool done() const { return pieces_done == piece_ends.size(); }
};

// Cuts ops that are larger than two pieces, and gathers small ops into pieces.
void Cut(std::span<const CopyOp> ops, Batch& batch) {
  size_t piece_bytes = 0;
  const auto add = [&](const CopyOp& op) {
    batch.ops.push_back(op);
    piece_bytes += op.bytes();
    if (piece_bytes < kPieceBytes) return;
    batch.piece_ends.push_back(batch.ops.size());
    piece_bytes = 0;
  };
  for (const CopyOp& op : ops) {
    if (op.bytes() <= 2 * kPieceBytes) {
      add(op);
      continue;
    }
    const auto rows_at_once =
        static_cast<uint32_t>(std::max<size_t>(kPieceBytes / op.row_bytes, 1));
    for (uint32_t row = 0; row < op.rows; row += rows_at_once) {
      CopyOp rows = op;
      rows.src += row * op.src_pitch;
      rows.dst += row * op.dst_pitch;
      rows.rows = std::min(rows_at_once, op.rows - row);
      if (rows.row_bytes <= 2 * kPieceBytes) {
        add(rows);
        continue;
      }
      for (size_t offset = 0; offset < op.row_bytes; offset += kPieceBytes) {
        add({rows.src + offset, rows.dst + offset, std::min(kPieceBytes, op.row_bytes - offset), 0,
             0, 1});
      }
    }
  }
  if (piece_bytes > 0) batch.piece_ends.push_back(batch.ops.size());
}

class HostCopyBackend final : public CopyBackend {
 public:
  explicit HostCopyBackend(const HostCopyConfig& config) {
    if (config.streaming) copy_ = transfer::WidestStreamCopy();
    try {
      for (int i = 0; i < config.threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // No more threads can start. The threads so far do all the work.
    }
  }

  ~HostCopyBackend() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    work_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  bool has_threads() const { return !threads_.empty(); }

  std::string_view name() const override { return "host"; }

  bool TellEnds(std::function<void()> tell) override {
    const MutexLock lock(mutex_);
    tell_ = std::move(tell);
    return true;
  }

  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                            void* after) override {
    if (after != nullptr) {
      return Status(StatusCode::kInvalidArgument, "after: the host backend has no events");
    }
    const MutexLock lock(mutex_);
    std::unique_ptr<Batch> batch = NewBatch();
    Cut(ops, *batch);
    const CopyTicket ticket = batch->ticket;
    lanes_[static_cast<size_t>(direction)].push_back(std::move(batch));
    work_.NotifyAll();
    return ticket;
  }

  CopyState Poll(CopyTicket ticket) override {
    const MutexLock lock(mutex_);
    return IsDone(ticket) ? End(ticket) : CopyState::kRunning;
  }

  CopyState Wait(CopyTicket ticket) override {
    const MutexLock lock(mutex_);
    while (!IsDone(ticket)) done_.Wait(mutex_);
    return End(ticket);
  }

 private:
  using Lane = std::vector<std::unique_ptr<Batch>>;

  std::unique_ptr<Batch> NewBatch() KV_REQUIRES(mutex_) {
    if (unused_.empty()) unused_.push_back(std::make_unique<Batch>());
    std::unique_ptr<Batch> batch = std::move(unused_.back());
    unused_.pop_back();
    batch->ticket = CopyTicket(next_ticket_++);
    batch->ops.clear();
    batch->piece_ends.clear();
    batch->pieces_taken = 0;
    batch->pieces_done = 0;
    return batch;
  }

  std::pair<Lane*, Lane::iterator> Find(CopyTicket ticket) KV_REQUIRES(mutex_) {
    for (Lane& lane : lanes_) {
      const auto it = std::find_if(lane.begin(), lane.end(),
                                   [&](const auto& batch) { return batch->ticket == ticket; });
      if (it != lane.end()) return {&lane, it};
    }
    KV_CHECK(false && "a ticket that is not in flight");
    return {};
  }
  bool IsDone(CopyTicket ticket) KV_REQUIRES(mutex_) { return (*Find(ticket).second)->done(); }
  CopyState End(CopyTicket ticket) KV_REQUIRES(mutex_) {
    const auto [lane, it] = Find(ticket);
    unused_.push_back(std::move(*it));
    lane->erase(it);
    return CopyState::kDone;
  }

  Batch* NextBatch() KV_REQUIRES(mutex_) {
    for (Lane& lane : lanes_) {
      for (const auto& batch : lane) {
        if (batch->has_work()) return batch.get();
      }
    }
    return nullptr;
  }

  void Work() {
    mutex_.lock();
    for (;;) {
      Batch* batch = nullptr;
      while ((batch = NextBatch()) == nullptr && !stopping_) work_.Wait(mutex_);
      if (batch == nullptr) break;
      const size_t piece = batch->pieces_taken++;
      const size_t begin = piece == 0 ? 0 : batch->piece_ends[piece - 1];
      const size_t end = batch->piece_ends[piece];
      mutex_.unlock();
      // Needs no lock, because the ops of the batch stay unchanged until all pieces are done.
      for (size_t i = begin; i < end; ++i) {
        Copy(batch->ops[i], i + 1 < batch->ops.size() ? batch->ops[i + 1].src : nullptr);
      }
      transfer::StreamFence();
      mutex_.lock();
      ++batch->pieces_done;
      if (!batch->done()) continue;
      done_.NotifyAll();
      if (tell_ == nullptr) continue;
      mutex_.unlock();
      tell_();
      mutex_.lock();
    }
    mutex_.unlock();
  }

  void Copy(const CopyOp& op, const std::byte* next_src) const {
    for (uint32_t row = 0; row < op.rows; ++row) {
      const std::byte* const src = op.src + row * op.src_pitch;
      copy_.function(op.dst + row * op.dst_pitch, src, op.row_bytes,
                     row + 1 < op.rows ? src + op.src_pitch : next_src);
    }
  }

  transfer::StreamCopyVariant copy_ = {"memcpy", [](void* dst, const void* src, size_t bytes,
                                                    const void*) { std::memcpy(dst, src, bytes); }};

  Mutex mutex_;
  CondVar work_;                // a batch has arrived, or the backend stops
  CondVar done_;                // a batch is done
  std::function<void()> tell_;  // set before the first batch
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ KV_GUARDED_BY(mutex_) = 0;
  std::array<Lane, 2> lanes_ KV_GUARDED_BY(mutex_);  // by direction: loads, then stores
  Lane unused_ KV_GUARDED_BY(mutex_);                // ended batches, kept for their memory

  std::vector<std::thread> threads_;  // last, because the threads use all members above
};

}  // namespace

Result<std::unique_ptr<CopyBackend>> MakeHostCopyBackend(const HostCopyConfig& config) {
  if (config.threads < 0 || config.threads > kMaxThreads) {
    return Status(StatusCode::kInvalidArgument, "threads: must be in 0..256");
  }
  HostCopyConfig chosen = config;
  if (chosen.threads == 0) {
    const auto processors = static_cast<int>(std::thread::hardware_concurrency());
    chosen.threads = std::clamp(processors / 2, 1, 4);
  }
  auto backend = std::make_unique<HostCopyBackend>(chosen);
  if (!backend->has_threads()) return Status(StatusCode::kExhausted, "no copy thread can start");
  return std::unique_ptr<CopyBackend>(std::move(backend));
}

}  // namespace kvcast
