// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/growth_curve.h"

#include <algorithm>

#include "apps/bench/growth/fresh_memory.h"
#include "apps/bench/index/process_memory.h"
#include "apps/bench/machine/machine_share.h"

namespace kvcast::bench {
namespace {

constexpr int64_t kFirstSize = 1'000'000;
// Blocks that are stored or removed to measure the replacement.
constexpr uint64_t kReplacedBlocks = 4'000'000;
// Shares of the memory limit that the growth and the replacement may use. The growth leaves memory
// for the replacement, and the replacement leaves memory for Reclaim.
constexpr double kGrowthShare = 0.95;
constexpr double kReplacementShare = 0.98;

bool UsesMoreThan(double share, int64_t memory) {
  const auto used = static_cast<double>(ReadProcessMemory(false).resident);
  return used > share * static_cast<double>(memory);
}

}  // namespace

std::vector<int64_t> GrowthSizes(int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = std::min(kFirstSize, most / 8); size < most / 4 * 3; size *= 2) {
    sizes.push_back(size);
  }
  sizes.push_back(most);
  return sizes;
}

Status GrowthCurve::Begin() {
  if (Status status = index_.AddWorkers(); !status.ok()) return status;
  begin_bytes_ = ReadProcessMemory(true).resident;
  return {};
}

bool GrowthCurve::is_full() const { return UsesMoreThan(kGrowthShare, limits_.memory); }

double GrowthCurve::BytesPerPair() const {
  return static_cast<double>(ReadProcessMemory(true).resident - begin_bytes_) /
         static_cast<double>(index_.held());
}

Result<GrowthPoint> GrowthCurve::Measure(int64_t residencies) {
  GrowthPoint point;
  const MachineShare machine;
  const auto grown = index_.Grow(static_cast<uint64_t>(residencies), [&] {
    point.full = is_full();
    return point.full;
  });
  const auto replaced = index_.Replace(std::min(kReplacedBlocks, 2 * index_.held()), [this] {
    return UsesMoreThan(kReplacementShare, limits_.memory);
  });
  const auto queries = index_.Ask(static_cast<uint64_t>(limits_.queries));
  point.held = static_cast<double>(index_.held());
  point.grow_ns = grown.ns / static_cast<double>(grown.blocks);
  point.apply_ns = replaced.wave_ns.median();
  point.batch_ms = std::max(grown.longest_ns, replaced.longest_ns) * 1e-6;
  const auto& slower = grown.longest_cpu_ns > replaced.longest_cpu_ns ? grown : replaced;
  point.batch_cpu_ms = slower.longest_cpu_ns * 1e-6;
  point.batch_faults = static_cast<double>(slower.longest_faults);
  point.page_ms = MeasureFreshHugePage() * 1e-6;
  point.query_p50_us = queries.ns.median() * 1e-3;
  point.query_p99_us = queries.ns.Quantile(0.99) * 1e-3;
  point.wrong = queries.wrong;
  point.grown_bytes = BytesPerPair();
  const auto pause = index_.MeasureLeave();
  if (!pause.ok()) return pause.status();
  point.reclaim_wait_ms = pause->longest_batch_ns * 1e-6;
  point.reclaim_s = pause->total_ns * 1e-9;
  point.bytes = BytesPerPair();
  const auto counted = index_.CountedResidencies();
  if (!counted.ok()) return counted.status();
  point.residencies = static_cast<double>(*counted);
  if (const auto shares = machine.Read()) {
    point.others_pct = 100 * (shares->others + shares->stolen);
  }
  return point;
}

}  // namespace kvcast::bench
