// Measures what copies cost on this machine. Each answer begins with the number of its question:
// 1 machine, 2 batches, 3 rows, 4 two threads, 5 calls, 6 kernels, 7 kinds of host memory, 8 mixes
// of paths, 9 graphs.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <thread>

#include "apps/bench/copy/bench_arena.h"
#include "apps/bench/copy/copy_graph.h"
#include "apps/gpu/driver_memory.h"
#include "cuda/copy_engine.h"
#include "kvcast/cuda/cuda_copy_backend.h"

namespace kvcast::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = std::function<void(std::string)>;

constexpr size_t kKiB = 1024;
constexpr int kTries = 5;
constexpr std::array kDirections = {CopyDirection::kLoad, CopyDirection::kStore};

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

const char* Name(CopyDirection direction) {
  return direction == CopyDirection::kLoad ? "H2D" : "D2H";
}

// The shortest of several runs, in seconds.
template <typename Run>
Result<double> Time(const Run& run) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    KVCAST_RETURN_IF_ERROR(run());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i == 0 || seconds < best) best = seconds;
  }
  return best;
}

class Questions {
 public:
  Questions(const CudaDevice& device, std::shared_ptr<BenchArena> arena, const Answer& answer)
      : device_(device),
        arena_(std::move(arena)),
        bytes_(arena_->bytes()),
        answer_(answer),
        engine_(device, nullptr) {}

  Status Ask() {
    KVCAST_RETURN_IF_ERROR(Machine());
    KVCAST_RETURN_IF_ERROR(Batches());
    KVCAST_RETURN_IF_ERROR(Rows());
    KVCAST_RETURN_IF_ERROR(TwoThreads());
    KVCAST_RETURN_IF_ERROR(Chunks());
    KVCAST_RETURN_IF_ERROR(Kernels());
    KVCAST_RETURN_IF_ERROR(MemoryKinds());
    KVCAST_RETURN_IF_ERROR(Mixes());
    return Graphs();
  }

 private:
  BenchWork Work(CopyDirection direction, size_t row_bytes, uint32_t rows, size_t payload) const {
    return MakeBenchWork(*arena_, {.direction = direction, .row_bytes = row_bytes, .rows = rows},
                         payload);
  }
  Status Batch(const BenchWork& work, const CopyEngineOptions& options) {
    CopyEngineCounts counts;
    KVCAST_RETURN_IF_ERROR(engine_.Enqueue(work.shape.direction, work.fragments, options,
                                           descriptors_, arena_->stream(), counts));
    return arena_->Synchronize();
  }
  CopyCall call() const { return CopyEngine::NewestCall(device_->api()); }

  Status Machine() {
    const CudaDeviceInfo info = InfoOf(device_);
    answer_(
        Format("1 %s, driver %d, sm_%d, %d multiprocessors, %d copy engines, NUMA node %d, "
               "copies by %s",
               info.name.c_str(), info.driver_version, info.compute_capability,
               info.multiprocessors, info.copy_engines, info.numa_node, info.copy_call.c_str()));
    answer_(
        Format("1 largest pitch %d, kernels can use host pointers: %d",
               device_->Attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
               device_->Attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)));
    for (const CopyDirection direction : kDirections) {
      const auto seconds = Time([&] { return arena_->CopyPlain(direction, bytes_ / 2); });
      if (!seconds.ok()) return seconds.status();
      answer_(Format("1 %s plain copy: %.2f GB/s", Name(direction),
                     static_cast<double>(bytes_ / 2) / *seconds / 1e9));
    }
    return {};
  }

  Status Batches() {
    struct Kind {
      const char* name;
      bool unordered, overlap;
    };
    constexpr Kind kKinds[] = {{"stream", false, false},
                               {"any", true, false},
                               {"stream, overlap", false, true},
                               {"any, overlap", true, true}};
    for (const CopyDirection direction : kDirections) {
      for (const size_t bytes : {1, 4, 8, 16, 20, 24, 26, 28, 32, 64}) {
        for (const size_t count : {64, 2048}) {
          const BenchWork work =
              Work(direction, bytes * kKiB, 1, std::min(count * bytes * kKiB, bytes_ / 2));
          std::string line =
              Format("2 %s %zu x %zu KiB:", Name(direction), work.fragments.size(), bytes);
          for (const Kind& kind : kKinds) {
            const auto seconds = Time([&] {
              return Batch(
                  work,
                  {.call = call(), .unordered = kind.unordered, .prefer_overlap = kind.overlap});
            });
            if (!seconds.ok()) return seconds.status();
            line += Format(" %s %.2f us a copy,", kind.name,
                           *seconds / static_cast<double>(work.fragments.size()) * 1e6);
          }
          answer_(line);
        }
      }
    }
    return {};
  }

  // Copies with rows: one descriptor per block.
  Status Rows() {
    if (!CopyEngine::HasRows(device_->api(), call())) {
      answer_("3 the driver has no batched copies of rows");
      return {};
    }
    for (const CopyDirection direction : kDirections) {
      for (const uint32_t rows : {1u, 4u, 16u, 64u}) {
        const BenchWork work = Work(direction, 4 * kKiB, rows, bytes_ / 8);
        std::vector<CopyOp> ops;
        for (size_t i = 0; i < work.fragments.size(); i += rows) {
          CopyOp op = work.fragments[i];
          op.rows = rows;
          const bool load = direction == CopyDirection::kLoad;
          op.src_pitch = load ? op.row_bytes : work.layout.parts[0].row_pitch;
          op.dst_pitch = load ? work.layout.parts[0].row_pitch : op.row_bytes;
          ops.push_back(op);
        }
        CopyEngineCounts counts;
        const auto seconds = Time([&] {
          KVCAST_RETURN_IF_ERROR(engine_.Enqueue(direction, ops,
                                                 {.call = call(), .rows_as_one = true},
                                                 descriptors_, arena_->stream(), counts));
          return arena_->Synchronize();
        });
        if (!seconds.ok()) return seconds.status();
        answer_(Format(
            "3 %s %zu descriptors of %u rows of 4 KiB: %.3f us a descriptor, %.3f us a "
            "row, %.2f GB/s",
            Name(direction), ops.size(), rows, *seconds / static_cast<double>(ops.size()) * 1e6,
            *seconds / static_cast<double>(work.fragments.size()) * 1e6,
            static_cast<double>(work.payload_bytes) / *seconds / 1e9));
      }
    }
    return {};
  }

  Status TwoThreads() {
    const BenchWork work = Work(CopyDirection::kLoad, 4 * kKiB, 1, bytes_ / 16);
    const auto half = work.fragments.size() / 2;
    auto other = MakeStream(device_);
    if (!other.ok()) return other.status();
    CopyDescriptors descriptors;
    const auto run = [&](size_t begin, size_t count, CopyDescriptors& own, CUstream stream) {
      CopyEngineCounts counts;
      KVCAST_RETURN_IF_ERROR(device_->MakeCurrent());
      KVCAST_RETURN_IF_ERROR(engine_.Enqueue(CopyDirection::kLoad,
                                             std::span(work.fragments).subspan(begin, count),
                                             {.call = call()}, own, stream, counts));
      return device_->Check(device_->api().StreamSynchronize(stream), "cuStreamSynchronize");
    };
    const auto one = Time([&] { return run(0, 2 * half, descriptors_, arena_->stream()); });
    const auto two = Time([&] {
      Status status;
      std::thread thread([&] { status = run(half, half, descriptors, other->get()); });
      const Status here = run(0, half, descriptors_, arena_->stream());
      thread.join();
      return here.ok() ? status : here;
    });
    if (!one.ok()) return one.status();
    if (!two.ok()) return two.status();
    answer_(Format("4 H2D %zu x 4 KiB: one thread %.2f us a copy, two threads %.2f", 2 * half,
                   *one / static_cast<double>(2 * half) * 1e6,
                   *two / static_cast<double>(2 * half) * 1e6));
    return {};
  }

  Status Chunks() {
    const BenchWork work = Work(CopyDirection::kLoad, 16 * kKiB, 1, bytes_ / 4);
    for (const size_t chunk : {64, 128, 256, 512, 1024, 4096}) {
      const auto seconds = Time([&] {
        CopyEngineCounts counts;
        for (size_t at = 0; at < work.fragments.size(); at += chunk) {
          const size_t n = std::min(chunk, work.fragments.size() - at);
          KVCAST_RETURN_IF_ERROR(
              engine_.Enqueue(CopyDirection::kLoad, std::span(work.fragments).subspan(at, n),
                              {.call = call()}, descriptors_, arena_->stream(), counts));
        }
        return arena_->Synchronize();
      });
      if (!seconds.ok()) return seconds.status();
      answer_(Format("5 H2D %zu x 16 KiB in calls of %zu copies: %.2f GB/s", work.fragments.size(),
                     chunk, static_cast<double>(work.payload_bytes) / *seconds / 1e9));
    }
    return {};
  }

  Status Kernels() {
    const auto kernels = CopyKernels::Load(device_);
    if (!kernels.ok()) return kernels.status();
    for (const bool ring : {true, false}) {
      if (ring && kernels->ring == nullptr) continue;
      CopyKernels only{.ring = ring ? kernels->ring : nullptr, .warps = kernels->warps};
      auto copier = KernelCopier::Create(device_, only);
      if (!copier.ok()) return copier.status();
      for (const CopyDirection direction : kDirections) {
        for (const size_t bytes : {1, 4, 16}) {
          KVCAST_RETURN_IF_ERROR(Kernel(*copier, direction, bytes * kKiB, ring));
        }
      }
    }
    return {};
  }

  Status Kernel(KernelCopier& copier, CopyDirection direction, size_t bytes, bool ring) {
    const BenchWork work = Work(direction, bytes, 1, bytes_ / 8);
    Pieces aligned, unaligned;
    const PinnedPool& host = arena_->host_pool();
    const auto address = [&host](const std::byte* p) {
      return reinterpret_cast<uint64_t>(host.Contains(p) ? host.DeviceAddress(p) : p);
    };
    for (const CopyOp& op : work.fragments) {
      CutIntoPieces(op, address(op.src), address(op.dst), aligned, unaligned);
    }
    std::string line =
        Format("6 %s %s kernel, %zu KiB, GB/s by number of thread blocks:", Name(direction),
               ring ? "bulk" : "register", bytes / kKiB);
    for (const int blocks : {1, 2, 3, 4, 6, 8, 12, 16}) {
      KernelCounts counts;
      const auto seconds = Time([&] {
        KVCAST_RETURN_IF_ERROR(
            copier.Enqueue(aligned, unaligned, blocks, arena_->stream(), counts));
        KVCAST_RETURN_IF_ERROR(arena_->Synchronize());
        copier.Release(copier.position());
        return Status();
      });
      if (!seconds.ok()) return seconds.status();
      line += Format(" %d: %.1f", blocks, static_cast<double>(work.payload_bytes) / *seconds / 1e9);
    }
    answer_(line);
    return {};
  }

  // Pinned memory of one kind, in parts. A copy must not cross the border of a part.
  struct HostMemory {
    std::byte* base = nullptr;
    size_t part = 0;
    std::shared_ptr<void> owner;
  };

  Status MemoryKinds() {
    const size_t bytes = bytes_ / 2;
    const auto pool = [&](PinnedPoolConfig config) -> Result<HostMemory> {
      config.bytes = bytes;
      auto made = PinnedPool::Create(device_, config);
      if (!made.ok()) return made.status();
      const auto owner = std::make_shared<PinnedPool>(std::move(made).value());
      return HostMemory{owner->base(), owner->registration_bytes(), owner};
    };
    const auto driver = [&](Result<DriverMemory> made) -> Result<HostMemory> {
      if (!made.ok()) return made.status();
      const auto owner = std::make_shared<DriverMemory>(std::move(made).value());
      return HostMemory{owner->base(), bytes, owner};
    };
    struct Kind {
      const char* name;
      std::function<Result<HostMemory>()> make;
    };
    const Kind kinds[] = {
        {"4 KiB pages", [&] { return pool({.pages = HostPages::kSmall}); }},
        {"transparent huge pages", [&] { return pool({}); }},
        {"reserved huge pages", [&] { return pool({.pages = HostPages::kHuge}); }},
        {"registered by 4 MiB", [&] { return pool({.registration_bytes = size_t{4} << 20}); }},
        {"cuMemHostAlloc", [&] { return driver(DriverMemory::Allocate(device_, bytes)); }},
        {"cuMemCreate", [&] { return driver(DriverMemory::Map(device_, bytes)); }}};
    for (const Kind& kind : kinds) {
      const auto start = Clock::now();
      const auto memory = kind.make();
      const double make_s = std::chrono::duration<double>(Clock::now() - start).count();
      if (!memory.ok()) {
        answer_(Format("7 %s: %s", kind.name, memory.status().message().c_str()));
        continue;
      }
      std::string line = Format("7 %s: made in %.0f ms", kind.name, make_s * 1e3);
      for (const CopyDirection direction : kDirections) {
        const auto seconds = Time([&] { return CopyInParts(direction, *memory, bytes); });
        if (!seconds.ok()) return seconds.status();
        line +=
            Format(", %s %.2f GB/s", Name(direction), static_cast<double>(bytes) / *seconds / 1e9);
      }
      answer_(line);
    }
    return {};
  }

  Status CopyInParts(CopyDirection direction, const HostMemory& memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += memory.part) {
      const auto gpu = reinterpret_cast<CUdeviceptr>(arena_->gpu() + at);
      const auto host = reinterpret_cast<CUdeviceptr>(memory.base + at);
      const bool load = direction == CopyDirection::kLoad;
      KVCAST_RETURN_IF_ERROR(device_->Check(
          device_->api().MemcpyAsync(load ? gpu : host, load ? host : gpu,
                                     std::min(memory.part, bytes - at), arena_->stream()),
          "cuMemcpyAsync"));
    }
    return arena_->Synchronize();
  }

  // Loads and stores at the same time, for each pair of paths.
  Status Mixes() {
    constexpr std::array kPaths = {CudaCopyPath::kCopyEngine, CudaCopyPath::kKernel};
    const size_t payload = bytes_ / 4;
    const BenchWork load = Work(CopyDirection::kLoad, 16 * kKiB, 1, payload);
    BenchWork store = Work(CopyDirection::kStore, 16 * kKiB, 1, payload);
    for (CopyOp& op : store.fragments) {
      op.src += 2 * payload;
      op.dst += 2 * payload;
    }
    for (const CudaCopyPath load_path : kPaths) {
      for (const CudaCopyPath store_path : kPaths) {
        CudaCopyConfig config;
        config.host = &arena_->host_pool();
        config.load_path = load_path;
        config.store_path = store_path;
        auto backend = CudaCopyBackend::Create(device_, config);
        if (!backend.ok()) return backend.status();
        const auto seconds = Time([&]() -> Status {
          const auto first = (*backend)->Submit(CopyDirection::kLoad, load.fragments, nullptr);
          if (!first.ok()) return first.status();
          const auto second = (*backend)->Submit(CopyDirection::kStore, store.fragments, nullptr);
          if (!second.ok()) return second.status();
          const bool done = (*backend)->Wait(*first) == CopyState::kDone &&
                            (*backend)->Wait(*second) == CopyState::kDone;
          return done ? Status() : Status(StatusCode::kUnavailable, "a batch failed");
        });
        if (!seconds.ok()) return seconds.status();
        answer_(Format("8 16 KiB, loads by %s, stores by %s: %.2f GB/s, both directions together",
                       std::string(CudaCopyPathName(load_path)).c_str(),
                       std::string(CudaCopyPathName(store_path)).c_str(),
                       2 * static_cast<double>(load.payload_bytes) / *seconds / 1e9));
      }
    }
    return {};
  }

  // Compares one batch, a graph, and a graph whose nodes are bound to other blocks before each
  // launch.
  Status Graphs() {
    for (const CopyDirection direction : kDirections) {
      for (const size_t bytes : {16, 64}) {
        for (const size_t count : {64, 1024}) {
          KVCAST_RETURN_IF_ERROR(
              Graph(Work(direction, bytes * kKiB, 1, std::min(count * bytes * kKiB, bytes_ / 4))));
        }
      }
    }
    return {};
  }

  Status Graph(const BenchWork& work) {
    const CopyDirection direction = work.shape.direction;
    const std::span<const CopyOp> ops = work.fragments;
    const std::string label =
        Format("9 %s %zu x %zu KiB:", Name(direction), ops.size(), work.shape.row_bytes / kKiB);
    std::vector<CopyOp> others = work.fragments;
    for (CopyOp& op : others) {
      op.src += bytes_ / 2;
      op.dst += bytes_ / 2;
    }
    auto graph = CopyGraph::Create(device_, direction, others);
    if (graph.status().code() == StatusCode::kFailedPrecondition) {
      answer_(label + " " + graph.status().message());
      return {};
    }
    if (!graph.ok()) return graph.status();
    const auto launch = [&] {
      KVCAST_RETURN_IF_ERROR(graph->Launch(arena_->stream()));
      return arena_->Synchronize();
    };
    bool turn = false;
    const auto rebind_and_launch = [&] {
      turn = !turn;
      KVCAST_RETURN_IF_ERROR(graph->Rebind(turn ? ops : others));
      return launch();
    };
    KVCAST_RETURN_IF_ERROR(arena_->FillSource(direction));
    arena_->ExpectCopies(direction, work.fragments);
    KVCAST_RETURN_IF_ERROR(arena_->PoisonTarget(direction));
    KVCAST_RETURN_IF_ERROR(rebind_and_launch());
    KVCAST_RETURN_IF_ERROR(arena_->Verify(direction));
    const auto batch = Time([&] { return Batch(work, {.call = call()}); });
    const auto replay = Time(launch);
    const auto rebound = Time(rebind_and_launch);
    for (const auto* seconds : {&batch, &replay, &rebound}) {
      if (!seconds->ok()) return seconds->status();
    }
    const auto million_copies = static_cast<double>(ops.size()) / 1e6;
    answer_(label + Format(" one batch %.2f us a copy, a graph %.2f, a rebound graph %.2f",
                           *batch / million_copies, *replay / million_copies,
                           *rebound / million_copies));
    return {};
  }

  const CudaDevice device_;
  const std::shared_ptr<BenchArena> arena_;
  const size_t bytes_;
  const Answer& answer_;
  const CopyEngine engine_;
  CopyDescriptors descriptors_;
};

}  // namespace

Status RunCudaQuestions(const CudaDevice& device, size_t bytes, const Answer& answer) {
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  auto arena = BenchArena::Create(device, bytes);
  if (!arena.ok()) return arena.status();
  return Questions(device, std::move(arena).value(), answer).Ask();
}

}  // namespace kvcast::cuda
