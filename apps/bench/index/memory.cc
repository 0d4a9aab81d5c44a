// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/fleet.h"
#include "apps/bench/index/options.h"
#include "apps/bench/index/process_memory.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr double kOneHolderTarget = 24;
constexpr double kFourHoldersTarget = 10;

constexpr char kMemoryMethod[] =
    "Bytes per held pair (worker, block). A pair counts once, also if several groups hold the\n"
    "block. The bytes come from the allocator (mallinfo2) and from the kernel (resident pages,\n"
    "after malloc_trim). The bytes of an index with registered workers and no blocks are\n"
    "subtracted. The target applies to the larger of the two figures. steady: after about a\n"
    "fifth of the blocks was replaced, and after Reclaim, which owners call from time to time.\n"
    "steady_unreclaimed: before Reclaim. worst_size: the largest figure of about 20 sizes while\n"
    "the caches fill, from half of the pairs to all pairs. left_after: the share of the bytes\n"
    "that remains after the caches of half of the workers, or of all workers, were cleared.\n"
    "_resident, _trimmed: the share of the resident pages, before and after malloc_trim.";

class MemoryCase {
 public:
  explicit MemoryCase(const ChurnConfig& config) : churn_(config) {}

  Status Run(Report& report, const std::string& name, double target) {
    // The batches use memory that would distort the result of a small fleet. They therefore exist
    // before the first measurement.
    TurnBatches batches(churn_, Removes::kMerged);
    if (Status status = AddFleet(churn_.config(), index_); !status.ok()) return status;
    before_ = ReadProcessMemory(true);
    double worst = 0;
    const uint64_t every = std::max<uint64_t>(churn_.steady_turn() / 40, 1);
    uint64_t turn = 0;
    for (; turn < churn_.steady_turn(); ++turn) {
      Apply(batches, turn);
      const uint64_t held = std::min((turn + 1) * Blocks(), churn_.residencies());
      if (held < churn_.residencies() / 2 || turn % every != 0) continue;
      worst = std::max(worst, Since(before_, true).larger() / static_cast<double>(held));
    }
    const uint64_t churned = turn + std::max<uint64_t>(churn_.steady_turn() / 5, 1);
    for (; turn < churned; ++turn) Apply(batches, turn);
    if (Status status = CheckFleet(churn_, index_); !status.ok()) return status;

    const Used unreclaimed = Since(before_, true);
    Reclaim();
    const Used full = Since(before_, true);
    const auto held = static_cast<double>(churn_.residencies());
    report.Target(name + ".steady", full.larger() / held, "bytes", target);
    report.Figure(name + ".steady_allocator", full.allocated / held, "bytes");
    report.Figure(name + ".steady_resident", full.resident / held, "bytes");
    report.Figure(name + ".steady_unreclaimed", unreclaimed.larger() / held, "bytes");
    report.Figure(name + ".worst_size", worst, "bytes");
    Clear(0, churn_.config().workers / 2);
    ReportLeft(report, name + ".left_after_half", full);
    Clear(churn_.config().workers / 2, churn_.config().workers);
    ReportLeft(report, name + ".left_after_all", full);
    return {};
  }

 private:
  struct Used {
    double allocated;
    double resident;

    double larger() const { return std::max(allocated, resident); }
  };

  uint64_t Blocks() const { return static_cast<uint64_t>(churn_.config().blocks); }
  void Apply(TurnBatches& batches, uint64_t turn) {
    const Churn::Turn now = churn_.At(turn);
    for (const EventBatch& batch : batches.Make(now)) index_.Apply(now.worker, batch);
  }
  static Used Since(const ProcessMemory& before, bool trim) {
    const ProcessMemory now = ReadProcessMemory(trim);
    return {static_cast<double>(now.allocated - before.allocated),
            static_cast<double>(now.resident - before.resident)};
  }
  void Clear(int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      index_.ClearWorker(WorkerId(static_cast<uint32_t>(worker)));
    }
    Reclaim();
  }
  void Reclaim() {
    while (index_.Reclaim()) {
    }
  }
  void ReportLeft(Report& report, const std::string& name, const Used& full) const {
    const Used untrimmed = Since(before_, false);
    const Used now = Since(before_, true);
    report.Figure(name, now.allocated / full.allocated, "of bytes");
    report.Figure(name + "_resident", untrimmed.resident / full.resident, "of pages");
    report.Figure(name + "_trimmed", now.resident / full.resident, "of pages");
  }

  const Churn churn_;
  ProcessMemory before_;
  PrefixIndex index_;
};

}  // namespace

int RunMemoryBench(const MemoryBenchOptions& options) {
  Report report("memory", kMemoryMethod, options.fleet.json);
  for (const ChurnConfig& holders : FleetCases(options.fleet, {1, 4})) {
    for (const int64_t groups : {1, 2, 4, 8}) {
      ChurnConfig config = holders;
      config.groups = options.fleet.groups > 0 ? options.fleet.groups : groups;
      const std::string name = "memory.holders" + std::to_string(config.holders) + ".groups" +
                               std::to_string(config.groups);
      const double target = config.holders >= 4 ? kFourHoldersTarget : kOneHolderTarget;
      const auto fleet = std::make_unique<MemoryCase>(config);
      if (Status status = fleet->Run(report, name, target); !status.ok()) {
        return tools::Fail(status);
      }
      if (options.fleet.groups > 0) break;
    }
  }
  return report.Finish();
}

}  // namespace kvcast::bench
