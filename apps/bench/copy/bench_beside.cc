// Measures simultaneous copies in both directions, and copies while a model's kernels run.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "apps/bench/copy/bench_arena.h"
#include "cuda/copy_engine.h"
#include "kvcast/cuda/cuda_copy_backend.h"

namespace kvcast::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKiB = 1024;
constexpr uint32_t kGemmSize = 2048;
constexpr size_t kTouchedWords = size_t{1} << 18;  // 2 MiB; a kernel takes a few microseconds
constexpr size_t kCopiedBytes = size_t{64} << 20;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

CopyBenchShape Shape(CopyDirection direction, size_t row_bytes) {
  return {.direction = direction, .row_bytes = row_bytes};
}

// Keeps up to kInFlight batches in flight. The batches copy the fragments of one work repeatedly.
class BackgroundCopies {
 public:
  BackgroundCopies(CudaCopyBackend* backend, const BenchWork& work)
      : backend_(backend), work_(&work) {}

  // Submits batches until kInFlight batches are in flight, then forgets the batches that have
  // ended. Without a backend, does nothing.
  Status Feed() {
    while (backend_ != nullptr && tickets_.size() < kInFlight) {
      const size_t begin = next_;
      const size_t end = std::min(begin + kCudaBatchOps, work_->fragments.size());
      next_ = end == work_->fragments.size() ? 0 : end;
      const auto ticket = backend_->Submit(
          work_->shape.direction, std::span(work_->fragments).subspan(begin, end - begin), nullptr);
      if (!ticket.ok()) return ticket.status();
      tickets_.push_back(*ticket);
    }
    std::erase_if(tickets_, [this](CopyTicket ticket) {
      return backend_->Poll(ticket) != CopyState::kRunning;
    });
    return {};
  }
  void Finish() {
    for (const CopyTicket ticket : tickets_) (void)backend_->Wait(ticket);
    tickets_.clear();
  }

 private:
  static constexpr size_t kInFlight = 3;
  CudaCopyBackend* const backend_;
  const BenchWork* const work_;
  size_t next_ = 0;
  std::vector<CopyTicket> tickets_;
};

// The kernels of a model. GPU events measure the duration of each kernel.
class ModelKernels {
 public:
  static Result<std::unique_ptr<ModelKernels>> Create(const BenchArena& arena) {
    auto memory = CudaMemory::Create(arena.device(), 3 * kGemmSize * kGemmSize * sizeof(float));
    if (!memory.ok()) return memory.status();
    auto stream = MakeStream(arena.device());
    if (!stream.ok()) return stream.status();
    auto begin = MakeEvent(arena.device(), EventTimes::kOn);
    if (!begin.ok()) return begin.status();
    auto end = MakeEvent(arena.device(), EventTimes::kOn);
    if (!end.ok()) return end.status();
    return std::make_unique<ModelKernels>(arena, std::move(memory).value(),
                                          std::move(stream).value(), std::move(begin).value(),
                                          std::move(end).value());
  }
  ModelKernels(const BenchArena& arena, CudaMemory memory, Stream stream, Event begin, Event end)
      : arena_(arena),
        memory_(std::move(memory)),
        stream_(std::move(stream)),
        begin_(std::move(begin)),
        end_(std::move(end)) {}

  // Returns the duration of each launch in seconds.
  Result<std::vector<double>> Run(bool gemm, int launches,
                                  const std::array<BackgroundCopies*, 2>& copies) {
    const DriverApi& api = arena_.device()->api();
    std::vector<double> seconds;
    for (int i = 0; i < launches; ++i) {
      for (BackgroundCopies* one : copies) KVCAST_RETURN_IF_ERROR(one->Feed());
      KVCAST_RETURN_IF_ERROR(Check(api.EventRecord(begin_.get(), stream_.get())));
      KVCAST_RETURN_IF_ERROR(gemm ? LaunchGemm() : LaunchTouch());
      KVCAST_RETURN_IF_ERROR(Check(api.EventRecord(end_.get(), stream_.get())));
      KVCAST_RETURN_IF_ERROR(Check(api.EventSynchronize(end_.get())));
      float milliseconds = 0;
      KVCAST_RETURN_IF_ERROR(Check(api.EventElapsedTime(&milliseconds, begin_.get(), end_.get())));
      seconds.push_back(milliseconds / 1e3);
    }
    for (BackgroundCopies* one : copies) one->Finish();
    return seconds;
  }

 private:
  Status Check(CUresult result) const { return arena_.device()->Check(result, "a timed kernel"); }
  Status LaunchGemm() const {
    auto* const c = reinterpret_cast<float*>(memory_.base());
    const uint32_t n = kGemmSize;
    return LaunchTool(arena_.device(), arena_.tools().gemm, n / 32 * (n / 32), 256, stream_.get(),
                      c, c + n * n, c + 2 * n * n, n);
  }
  Status LaunchTouch() const {
    return LaunchTool(arena_.device(), arena_.tools().touch, 64, 256, stream_.get(), memory_.base(),
                      uint64_t{kTouchedWords});
  }

  const BenchArena& arena_;
  const CudaMemory memory_;
  const Stream stream_;
  const Event begin_;
  const Event end_;
};

struct CopyCase {
  const char* name;
  std::optional<CudaCopyPath> path;  // nullopt: the backend chooses a path
  int kernel_blocks = 0;             // 0: the backend chooses the number
  size_t row_bytes = 0;
};
constexpr CopyCase kCopyCases[] = {
    {"copy engine, 256 KiB", CudaCopyPath::kCopyEngine, 0, 256 * kKiB},
    {"copy engine, 16 KiB", CudaCopyPath::kCopyEngine, 0, 16 * kKiB},
    {"kernel as calibrated, 16 KiB", CudaCopyPath::kKernel, 0, 16 * kKiB},
    {"kernel of 16 blocks, 16 KiB", CudaCopyPath::kKernel, 16, 16 * kKiB},
    {"kernel on all multiprocessors, 16 KiB", CudaCopyPath::kKernel, 1024, 16 * kKiB},
    {"staged, 16 KiB", CudaCopyPath::kStaged, 0, 16 * kKiB},
};

Result<std::unique_ptr<CudaCopyBackend>> Backend(const BenchArena& arena,
                                                 std::optional<CudaCopyPath> path,
                                                 int kernel_blocks) {
  CudaCopyConfig config;
  config.host = &arena.host_pool();
  config.load_path = config.store_path = path;
  config.kernel_blocks = kernel_blocks;
  return CudaCopyBackend::Create(arena.device(), config);
}

// Loads use the beginning of both pools. Stores use the bytes after the blocks of the loads.
struct BothWays {
  BenchWork load;
  BenchWork store;
};

BothWays MakeBothWays(const BenchArena& arena, size_t row_bytes, size_t payload_bytes) {
  BothWays work{MakeBenchWork(arena, Shape(CopyDirection::kLoad, row_bytes), payload_bytes),
                MakeBenchWork(arena, Shape(CopyDirection::kStore, row_bytes), payload_bytes)};
  for (CopyOp& op : work.store.fragments) {
    op.src += payload_bytes + row_bytes;
    op.dst += payload_bytes + row_bytes;
  }
  return work;
}

Status RunOnce(CudaCopyBackend& backend, const BothWays& work) {
  const std::array works = {&work.load, &work.store};
  std::vector<CopyTicket> tickets;
  for (size_t at = 0; at < work.load.fragments.size(); at += kCudaBatchOps) {
    for (const BenchWork* one : works) {
      const size_t n = std::min(kCudaBatchOps, one->fragments.size() - at);
      const auto ticket =
          backend.Submit(one->shape.direction, std::span(one->fragments).subspan(at, n), nullptr);
      if (!ticket.ok()) return ticket.status();
      tickets.push_back(*ticket);
    }
  }
  for (const CopyTicket ticket : tickets) {
    if (backend.Wait(ticket) != CopyState::kDone) {
      return {StatusCode::kUnavailable, "a copy batch failed"};
    }
  }
  return {};
}

}  // namespace

Result<std::vector<BothWaysResult>> RunBothWays(const CudaDevice& device, size_t payload_bytes,
                                                int cycles) {
  constexpr std::array kSizes = {16 * kKiB, 128 * kKiB, 2048 * kKiB};
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  auto arena = BenchArena::Create(device, 2 * (payload_bytes + kSizes.back()));
  if (!arena.ok()) return arena.status();
  auto other = MakeStream(device);
  if (!other.ok()) return other.status();
  auto backend = Backend(**arena, {}, 0);
  if (!backend.ok()) return backend.status();
  const CopyEngine engine(device, nullptr);
  const CopyEngineOptions options{.call = CopyEngine::NewestCall(device->api())};
  std::array<CopyDescriptors, 2> descriptors;
  CopyEngineCounts counts;
  const auto batch = [&](const std::vector<CopyOp>& load, const std::vector<CopyOp>& store) {
    KVCAST_RETURN_IF_ERROR(engine.Enqueue(CopyDirection::kLoad, load, options, descriptors[0],
                                          (*arena)->stream(), counts));
    KVCAST_RETURN_IF_ERROR(engine.Enqueue(CopyDirection::kStore, store, options, descriptors[1],
                                          other->get(), counts));
    KVCAST_RETURN_IF_ERROR((*arena)->Synchronize());
    return device->Check(device->api().StreamSynchronize(other->get()), "cuStreamSynchronize");
  };
  std::vector<BothWaysResult> results;
  for (const size_t size : kSizes) {
    const BothWays work = MakeBothWays(**arena, size, payload_bytes);
    const size_t bytes = work.load.payload_bytes;
    const std::vector<CopyOp> plain_load = {{(*arena)->host(), (*arena)->gpu(), bytes, 0, 0, 1}};
    const size_t half = payload_bytes + size;
    const std::vector<CopyOp> plain_store = {
        {(*arena)->gpu() + half, (*arena)->host() + half, bytes, 0, 0, 1}};
    std::vector<double> ceilings, ours, batches;
    const auto rate = [&](const auto& run) -> Result<double> {
      const auto start = Clock::now();
      KVCAST_RETURN_IF_ERROR(run());
      return 2 * static_cast<double>(bytes) / Since(start);
    };
    for (int cycle = 0; cycle < cycles; ++cycle) {
      const auto ceiling = rate([&] { return batch(plain_load, plain_store); });
      const auto our_rate = rate([&] { return RunOnce(**backend, work); });
      const auto batch_rate =
          rate([&] { return batch(work.load.fragments, work.store.fragments); });
      for (const auto* result : {&ceiling, &our_rate, &batch_rate}) {
        if (!result->ok()) return result->status();
      }
      ceilings.push_back(*ceiling);
      ours.push_back(*our_rate / *ceiling);
      batches.push_back(*batch_rate / *ceiling);
    }
    results.push_back({size, Quantile(ceilings, 0.5), Quantile(ours, 0.5), Quantile(batches, 0.5)});
  }
  return results;
}

Result<std::vector<SlowdownResult>> RunSlowdown(const CudaDevice& device, int launches) {
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  auto arena = BenchArena::Create(device, 2 * (kCopiedBytes + 256 * kKiB));
  if (!arena.ok()) return arena.status();
  auto kernels = ModelKernels::Create(**arena);
  if (!kernels.ok()) return kernels.status();
  std::vector<SlowdownResult> results;
  for (const CopyCase& copy_case : kCopyCases) {
    auto backend = Backend(**arena, copy_case.path, copy_case.kernel_blocks);
    if (!backend.ok()) return backend.status();
    const BothWays work = MakeBothWays(**arena, copy_case.row_bytes, kCopiedBytes);
    for (const bool gemm : {true, false}) {
      BackgroundCopies nothing(nullptr, work.load);
      BackgroundCopies loads(backend->get(), work.load);
      BackgroundCopies stores(backend->get(), work.store);
      const auto alone = (*kernels)->Run(gemm, launches, {&nothing, &nothing});
      if (!alone.ok()) return alone.status();
      const auto both = (*kernels)->Run(gemm, launches, {&loads, &stores});
      if (!both.ok()) return both.status();
      results.push_back({.work = gemm ? "gemm" : "small kernels",
                         .copies = copy_case.name,
                         .idle_p50 = Quantile(*alone, 0.5),
                         .p50 = Quantile(*both, 0.5) / Quantile(*alone, 0.5),
                         .p99 = Quantile(*both, 0.99) / Quantile(*alone, 0.99)});
    }
  }
  return results;
}

}  // namespace kvcast::cuda
