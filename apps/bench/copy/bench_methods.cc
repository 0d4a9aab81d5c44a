// The measured methods: the methods of this library, and reimplementations of methods that other
// projects have published.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "apps/bench/copy/bench_arena.h"
#include "cuda/copy_engine.h"
#include "kvcast/cuda/cuda_copy_backend.h"
#include "kvcast/transfer/transfer_engine.h"

namespace kvcast::cuda {
namespace {

using Arena = std::shared_ptr<BenchArena>;

// Forwards to a backend that outlives the TransferEngine. Prepare makes a new TransferEngine for
// each BenchWork.
class BorrowedBackend final : public CopyBackend {
 public:
  explicit BorrowedBackend(CudaCopyBackend& backend) : backend_(backend) {}
  std::string_view name() const override { return backend_.name(); }
  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops,
                            void* after) override {
    return backend_.Submit(direction, ops, after);
  }
  CopyState Poll(CopyTicket ticket) override { return backend_.Poll(ticket); }
  CopyState Wait(CopyTicket ticket) override { return backend_.Wait(ticket); }

 private:
  CudaCopyBackend& backend_;
};

// The measured time begins when Run submits the job, and ends when Run has the result. The time
// includes the planning of the copies by TransferEngine.
class OurMethod {
 public:
  OurMethod(Arena arena, std::unique_ptr<CudaCopyBackend> backend)
      : arena_(std::move(arena)), backend_(std::move(backend)) {}

  Status Prepare(const BenchWork& work) {
    engine_.reset();
    work_ = &work;
    TransferConfig config;
    config.groups.push_back({work.layout, 1});
    config.host = work.host;
    config.max_batch_bytes = kCudaBatchBytes;
    config.max_batch_ops = kCudaBatchOps;
    config.own_thread = false;
    auto engine =
        TransferEngine::Create(std::move(config), std::make_unique<BorrowedBackend>(*backend_));
    if (!engine.ok()) return engine.status();
    engine_ = std::move(engine).value();
    return {};
  }
  Status Run() {
    const TransferGroup group{GroupIdx(0), 0, work_->blocks, work_->slots};
    engine_->Submit({TransferJobId(next_job_++), work_->shape.direction, {&group, 1}, nullptr});
    engine_->WaitAll();
    results_.clear();
    engine_->Poll(results_);
    return results_.empty()
               ? Status(StatusCode::kInternal, "TransferEngine returned no result for the job")
               : results_[0].status;
  }
  std::string Chosen() const {
    const CudaCopyStats stats = backend_->stats();
    const bool load = work_->shape.direction == CopyDirection::kLoad;
    for (const auto& size_class : (load ? stats.loads : stats.stores).classes) {
      if (work_->shape.row_bytes >= size_class.fragment_bytes &&
          work_->shape.row_bytes < 2 * size_class.fragment_bytes) {
        return std::string(CudaCopyPathName(size_class.choice));
      }
    }
    return "";
  }

 private:
  const Arena arena_;  // must outlive the backend
  const std::unique_ptr<CudaCopyBackend> backend_;
  std::unique_ptr<TransferEngine> engine_;
  const BenchWork* work_ = nullptr;
  std::vector<TransferResult> results_;
  uint64_t next_job_ = 0;
};

Result<BenchMethod> Ours(const Arena& arena, std::optional<CudaCopyPath> path) {
  CudaCopyConfig config;
  config.host = &arena->host_pool();
  config.load_path = config.store_path = path;
  auto backend = CudaCopyBackend::Create(arena->device(), config);
  if (!backend.ok()) return backend.status();
  const auto method = std::make_shared<OurMethod>(arena, std::move(backend).value());
  return BenchMethod{.name = path ? "kvcast " + std::string(CudaCopyPathName(*path)) : "kvcast",
                     .prepare = [method](const BenchWork& work) { return method->Prepare(work); },
                     .run = [method] { return method->Run(); },
                     .chosen = [method] { return method->Chosen(); }};
}

// Copies by one call with a descriptor per fragment, or by one call per fragment.
class EngineRival {
 public:
  EngineRival(Arena arena, const CopyEngineOptions& options, bool merge)
      : arena_(std::move(arena)),
        engine_(arena_->device(), nullptr),
        options_(options),
        merge_(merge) {}

  Status Prepare(const BenchWork& work) {
    work_ = &work;
    return {};
  }
  Status Run() {
    std::span<const CopyOp> ops = work_->fragments;
    if (merge_) {
      Merge();
      ops = merged_;
    }
    CopyEngineCounts counts;
    KVCAST_RETURN_IF_ERROR(engine_.Enqueue(work_->shape.direction, ops, options_, descriptors_,
                                           arena_->stream(), counts));
    return arena_->Synchronize();
  }

 private:
  // Merges consecutive fragments whose sources are adjacent and whose destinations are adjacent.
  void Merge() {
    merged_.clear();
    for (const CopyOp& op : work_->fragments) {
      if (!merged_.empty() && merged_.back().src + merged_.back().row_bytes == op.src &&
          merged_.back().dst + merged_.back().row_bytes == op.dst) {
        merged_.back().row_bytes += op.row_bytes;
      } else {
        merged_.push_back(op);
      }
    }
  }

  const Arena arena_;
  const CopyEngine engine_;
  const CopyEngineOptions options_;
  const bool merge_;
  const BenchWork* work_ = nullptr;
  CopyDescriptors descriptors_;
  std::vector<CopyOp> merged_;
};

BenchMethod Rival(const Arena& arena, const char* name, const CopyEngineOptions& options,
                  bool merge = false) {
  const auto method = std::make_shared<EngineRival>(arena, options, merge);
  return {.name = name,
          .rival = true,
          .prepare = [method](const BenchWork& work) { return method->Prepare(work); },
          .run = [method] { return method->Run(); },
          .chosen = {}};
}

// Copies a table of the fragments to the GPU first, then launches one kernel over all fragments.
class KernelRival {
 public:
  // blocks 0: one thread block per fragment.
  KernelRival(Arena arena, CUfunction kernel, unsigned blocks, unsigned threads)
      : arena_(std::move(arena)), kernel_(kernel), blocks_(blocks), threads_(threads) {}

  Status Prepare(const BenchWork& work) {
    const size_t count = work.fragments.size();
    const size_t bytes = count * kEntryBytes;
    if (table_ == nullptr || table_->bytes() < bytes) {
      auto table = PinnedPool::Create(arena_->device(), {.bytes = bytes});
      if (!table.ok()) return table.status();
      auto on_gpu = CudaMemory::Create(arena_->device(), bytes);
      if (!on_gpu.ok()) return on_gpu.status();
      table_ = std::make_unique<PinnedPool>(std::move(table).value());
      on_gpu_ = std::make_unique<CudaMemory>(std::move(on_gpu).value());
    }
    count_ = static_cast<uint32_t>(count);
    const auto address = [this](const std::byte* p) {
      const PinnedPool& host = arena_->host_pool();
      return reinterpret_cast<uint64_t>(host.Contains(p) ? host.DeviceAddress(p) : p);
    };
    auto* const src = reinterpret_cast<uint64_t*>(table_->base());
    uint64_t* const dst = src + count;
    auto* const sizes = reinterpret_cast<uint32_t*>(dst + count);
    for (size_t i = 0; i < count; ++i) {
      src[i] = address(work.fragments[i].src);
      dst[i] = address(work.fragments[i].dst);
      sizes[i] = static_cast<uint32_t>(work.fragments[i].row_bytes);
    }
    return {};
  }
  Status Run() {
    const CudaDevice& device = arena_->device();
    const auto base = reinterpret_cast<CUdeviceptr>(on_gpu_->base());
    KVCAST_RETURN_IF_ERROR(
        device->Check(device->api().MemcpyAsync(base, reinterpret_cast<CUdeviceptr>(table_->base()),
                                                count_ * kEntryBytes, arena_->stream()),
                      "cuMemcpyAsync"));
    const uint64_t dst = base + count_ * sizeof(uint64_t);
    const uint64_t sizes = dst + count_ * sizeof(uint64_t);
    KVCAST_RETURN_IF_ERROR(LaunchTool(device, kernel_, blocks_ == 0 ? count_ : blocks_, threads_,
                                      arena_->stream(), uint64_t{base}, dst, sizes, count_));
    return arena_->Synchronize();
  }

 private:
  static constexpr size_t kEntryBytes = 2 * sizeof(uint64_t) + sizeof(uint32_t);

  const Arena arena_;
  const CUfunction kernel_;
  const unsigned blocks_;
  const unsigned threads_;
  uint32_t count_ = 0;
  std::unique_ptr<PinnedPool> table_;
  std::unique_ptr<CudaMemory> on_gpu_;
};

BenchMethod Rival(const Arena& arena, const char* name, CUfunction kernel, unsigned blocks,
                  unsigned threads) {
  const auto method = std::make_shared<KernelRival>(arena, kernel, blocks, threads);
  return {.name = name,
          .rival = true,
          .prepare = [method](const BenchWork& work) { return method->Prepare(work); },
          .run = [method] { return method->Run(); },
          .chosen = {}};
}

}  // namespace

Result<std::vector<BenchMethod>> MakeBenchMethods(const std::shared_ptr<BenchArena>& arena) {
  std::vector<BenchMethod> methods;
  for (const auto path :
       {std::optional<CudaCopyPath>(), std::optional(CudaCopyPath::kCopyEngine),
        std::optional(CudaCopyPath::kKernel), std::optional(CudaCopyPath::kStaged)}) {
    auto method = Ours(arena, path);
    if (!method.ok()) return method.status();
    methods.push_back(std::move(method).value());
  }
  const CopyCall call = CopyEngine::NewestCall(arena->device()->api());
  methods.push_back(Rival(arena, "copy loop", {.call = CopyCall::kLoop}));
  if (call != CopyCall::kLoop) {
    methods.push_back(Rival(arena, "one batch", {.call = call}));
    methods.push_back(Rival(arena, "one batch, any order", {.call = call, .unordered = true}));
    methods.push_back(Rival(arena, "batch + merging", {.call = call}, true));
  }
  const ToolKernels& tools = arena->tools();
  methods.push_back(Rival(arena, "kernel, 12 blocks", tools.block_per_fragment, 12, 512));
  methods.push_back(Rival(arena, "kernel, 16 blocks", tools.block_per_fragment, 16, 512));
  methods.push_back(Rival(arena, "kernel, 2 x 1024", tools.warp_per_fragment, 2, 1024));
  methods.push_back(
      Rival(arena, "kernel, one block per fragment", tools.block_per_fragment, 0, 512));
  return methods;
}

}  // namespace kvcast::cuda
