// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/copy_bench.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/bench/copy/bench_arena.h"

namespace kvcast::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKiB = 1024;
constexpr int kMinCycles = 3;
// The latency of the first byte dominates the time of a smaller payload. If blocks have one row,
// only one smaller payload has a target: a single row of 2 MiB.
constexpr size_t kLargePayload = size_t{128} << 20;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class CellRunner {
 public:
  CellRunner(BenchArena& arena, std::vector<BenchMethod>& methods, const CopyBenchConfig& config)
      : arena_(arena), methods_(methods), config_(config) {}

  Result<CopyBenchCell> Run(const CopyBenchShape& shape) {
    const BenchWork work = MakeBenchWork(arena_, shape, config_.payload_bytes);
    KVCAST_RETURN_IF_ERROR(CheckBytes(work));
    CopyBenchCell cell{.shape = shape, .payload_bytes = work.payload_bytes};
    std::vector<std::vector<double>> ratios(methods_.size());
    std::vector<double> ceilings;
    double before = 0;
    KVCAST_RETURN_IF_ERROR(TimeCeiling(work, before));
    ceilings.push_back(before);
    const auto start = Clock::now();
    while (cell.cycles < config_.max_cycles &&
           (cell.cycles < kMinCycles || Since(start) < config_.max_seconds)) {
      KVCAST_RETURN_IF_ERROR(RunCycle(work, cell.cycles++, ratios, ceilings));
    }
    cell.ceiling = Quantile(ceilings, 0.5);
    cell.drift = (Quantile(ceilings, 0.9) - Quantile(ceilings, 0.1)) / cell.ceiling;
    cell.target = CopyBenchTarget(shape, work.payload_bytes);
    if (methods_.front().chosen) cell.chosen = methods_.front().chosen();
    for (size_t i = 0; i < methods_.size(); ++i) {
      cell.methods.push_back({.name = methods_[i].name,
                              .rival = methods_[i].rival,
                              .ratio = Quantile(ratios[i], 0.5),
                              .p10 = Quantile(ratios[i], 0.1),
                              .p90 = Quantile(ratios[i], 0.9)});
    }
    return cell;
  }

 private:
  Status CheckBytes(const BenchWork& work) {
    const CopyDirection direction = work.shape.direction;
    KVCAST_RETURN_IF_ERROR(arena_.FillSource(direction));
    arena_.ExpectCopies(direction, work.fragments);
    for (const BenchMethod& method : methods_) {
      KVCAST_RETURN_IF_ERROR(arena_.PoisonTarget(direction));
      KVCAST_RETURN_IF_ERROR(method.prepare(work));
      Status status = method.run();
      if (status.ok()) status = arena_.Verify(direction);
      if (!status.ok()) return {status.code(), method.name + ": " + status.message()};
    }
    return {};
  }

  Status TimeCeiling(const BenchWork& work, double& rate) {
    const auto start = Clock::now();
    KVCAST_RETURN_IF_ERROR(arena_.CopyPlain(work.shape.direction, work.payload_bytes));
    rate = static_cast<double>(work.payload_bytes) / Since(start);
    return {};
  }

  // Runs each method between two plain copies. Each cycle starts with another method.
  Status RunCycle(const BenchWork& work, int cycle, std::vector<std::vector<double>>& ratios,
                  std::vector<double>& ceilings) {
    for (size_t i = 0; i < methods_.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(cycle)) % methods_.size();
      const auto start = Clock::now();
      KVCAST_RETURN_IF_ERROR(methods_[at].run());
      const double rate = static_cast<double>(work.payload_bytes) / Since(start);
      const double before = ceilings.back();
      double after = 0;
      KVCAST_RETURN_IF_ERROR(TimeCeiling(work, after));
      ceilings.push_back(after);
      ratios[at].push_back(2 * rate / (before + after));
    }
    return {};
  }

  BenchArena& arena_;
  std::vector<BenchMethod>& methods_;
  const CopyBenchConfig& config_;
};

}  // namespace

std::vector<CopyBenchShape> DefaultCopyBenchShapes() {
  std::vector<CopyBenchShape> shapes;
  for (const auto direction : {CopyDirection::kLoad, CopyDirection::kStore}) {
    for (const size_t bytes :
         {1 * kKiB, 4 * kKiB, 8 * kKiB, 16 * kKiB, 24 * kKiB, 28 * kKiB, 32 * kKiB, size_t{37440},
          64 * kKiB, 128 * kKiB, 256 * kKiB, size_t{1100000}, 2048 * kKiB}) {
      shapes.push_back({.direction = direction, .row_bytes = bytes});
    }
    // The layers lie apart, as some engines store them. A layer of MLA has 73,728 bytes per block.
    for (const size_t bytes : {4 * kKiB, 16 * kKiB, 32 * kKiB, size_t{73728}}) {
      shapes.push_back({.direction = direction, .row_bytes = bytes, .rows = 64});
    }
    for (const auto order : {BlockOrder::kRunsOfFour, BlockOrder::kSequential}) {
      shapes.push_back({.direction = direction, .row_bytes = 8 * kKiB, .order = order});
    }
    for (const size_t blocks : {1, 16, 256}) {
      shapes.push_back({.direction = direction, .row_bytes = 2048 * kKiB, .max_blocks = blocks});
      shapes.push_back({.direction = direction, .row_bytes = 16 * kKiB, .max_blocks = blocks});
    }
  }
  return shapes;
}

const CopyBenchMethod& CopyBenchCell::best_rival() const {
  const CopyBenchMethod* best = nullptr;
  for (const CopyBenchMethod& method : methods) {
    if (method.rival && (best == nullptr || method.ratio > best->ratio)) best = &method;
  }
  return best == nullptr ? methods.front() : *best;
}

double CopyBenchTarget(const CopyBenchShape& shape, size_t payload_bytes) {
  const bool load = shape.direction == CopyDirection::kLoad;
  if (shape.rows > 1) return shape.row_bytes >= 32 * kKiB ? 0.95 : 0;
  if (payload_bytes < kLargePayload) {
    return payload_bytes == shape.row_bytes && shape.row_bytes == 2048 * kKiB ? 0.80 : 0;
  }
  struct Row {
    size_t from;
    double load;
    double store;
  };
  constexpr Row kRows[] = {{256 * kKiB, 0.98, 0.98}, {64 * kKiB, 0.96, 0.96},
                           {32 * kKiB, 0.94, 0.94},  {16 * kKiB, 0.92, 0.88},
                           {8 * kKiB, 0.90, 0.85},   {4 * kKiB, 0.85, 0.80},
                           {1 * kKiB, 0.60, 0.55}};
  for (const Row& row : kRows) {
    if (shape.row_bytes >= row.from) return load ? row.load : row.store;
  }
  return 0;
}

Status RunCudaCopyBench(const CudaDevice& device, const CopyBenchConfig& config,
                        const std::function<void(const CopyBenchCell&)>& done) {
  size_t largest = 0;
  for (const CopyBenchShape& shape : config.shapes) {
    if (shape.row_bytes == 0 || shape.rows == 0) {
      return {StatusCode::kInvalidArgument, "shapes: row_bytes and rows must be positive"};
    }
    largest = std::max(largest, shape.row_bytes * shape.rows);
  }
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  auto created = BenchArena::Create(device, std::max(config.payload_bytes, largest) + largest);
  if (!created.ok()) return created.status();
  const std::shared_ptr<BenchArena> arena = std::move(created).value();
  auto methods = MakeBenchMethods(arena);
  if (!methods.ok()) return methods.status();
  CellRunner runner(*arena, *methods, config);
  for (const CopyBenchShape& shape : config.shapes) {
    const auto cell = runner.Run(shape);
    if (!cell.ok()) return cell.status();
    done(*cell);
  }
  return {};
}

}  // namespace kvcast::cuda
