// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/fleet.h"
#include "apps/bench/index/floor_map.h"
#include "apps/bench/index/options.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr double kApplyTarget = 0.6;
constexpr uint64_t kTurnsOfSlice = 16;

constexpr char kApplyMethod[] =
    "The workers have full caches. In each turn, one worker stores the blocks of a prompt, in\n"
    "steps of 8,192 tokens. In each step, the worker evicts as many blocks as it stores, from\n"
    "the end of its oldest prompt. The ratio divides the time of PrefixIndex::Apply by\n"
    "the time of a hash map for the same inserts and erases. The map is an\n"
    "absl::flat_hash_map<uint64,uint64> with one entry per (worker, group, block). The index\n"
    "and two hash maps execute a slice of 16 turns one after another. The batches of a turn\n"
    "are made before their calls, outside the measured time. Figures are medians\n"
    "of the slices. The suffixes of the figures: .each: one remove event per block, as in\n"
    "vLLM. .merged: one remove event per step and group. .p10, .p90: quantiles of the ratio.\n"
    ".index, .floor: times of the index and of the map per block operation. .fill: the time\n"
    "per block operation to fill the index. .residencies: the entries of the index.\n"
    ".holdersN: N workers hold each block. .to_prefetched: the ratio to the map if it\n"
    "prefetches its cache lines. .to_masks: the ratio to a map with one entry per block and\n"
    "group, which has one bit per worker.";

// The times of one slice, in nanoseconds per block operation.
struct Slice {
  double index = 0;
  double floor = 0;
  double masks = 0;
};

class ApplyCase {
 public:
  explicit ApplyCase(const ChurnConfig& config)
      : churn_(config), each_(churn_, Removes::kEach), merged_(churn_, Removes::kMerged) {}

  Status Fill(Report& report, const std::string& name) {
    if (Status status = AddFleet(churn_.config(), index_); !status.ok()) return status;
    const double seconds = FillIndex(churn_, index_);
    for (; turn_ < churn_.steady_turn(); ++turn_) {
      TakeOps(turn_, 1, merged_);
      floor_.Apply(floor_ops_);
      masks_.Apply(mask_ops_);
    }
    const double ops = static_cast<double>(churn_.steady_turn()) *
                       static_cast<double>(churn_.config().blocks * churn_.config().groups);
    report.Figure(name + ".residencies", static_cast<double>(churn_.residencies()), "");
    report.Figure(name + ".fill", seconds * 1e9 / ops, "ns/op");
    return CheckFleet(churn_, index_);
  }

  Slice Run(Removes removes, bool index_first, bool prefetched) {
    TurnBatches& batches = removes == Removes::kEach ? each_ : merged_;
    Slice slice;
    if (index_first) slice.index = RunIndex(batches);
    RunFloors(batches, prefetched, slice);
    if (!index_first) slice.index = RunIndex(batches);
    turn_ += kTurnsOfSlice;
    return slice;
  }
  Status Check() const { return CheckFleet(churn_, index_); }

 private:
  double RunIndex(TurnBatches& batches) {
    double nanoseconds = 0;
    int64_t ops = 0;
    for (uint64_t i = 0; i < kTurnsOfSlice; ++i) {
      const Churn::Turn turn = churn_.At(turn_ + i);
      const std::vector<EventBatch>& made = batches.Make(turn);
      const auto start = Clock::now();
      for (const EventBatch& batch : made) index_.Apply(turn.worker, batch);
      nanoseconds += NanosecondsSince(start);
      ops += batches.ops(turn);
    }
    return nanoseconds / static_cast<double>(ops);
  }
  void RunFloors(const TurnBatches& batches, bool prefetched, Slice& slice) {
    int64_t ops = 0;
    for (uint64_t i = 0; i < kTurnsOfSlice; ++i) {
      TakeOps(turn_ + i, 1, batches);
      ops += std::ssize(floor_ops_);
      const auto start = Clock::now();
      prefetched ? floor_.ApplyPrefetched(floor_ops_) : floor_.Apply(floor_ops_);
      slice.floor += NanosecondsSince(start);
    }
    for (uint64_t i = 0; i < kTurnsOfSlice; ++i) {
      TakeOps(turn_ + i, 1, batches);
      const auto start = Clock::now();
      masks_.Apply(mask_ops_);
      slice.masks += NanosecondsSince(start);
    }
    slice.floor /= static_cast<double>(ops);
    slice.masks /= static_cast<double>(ops);
  }
  void TakeOps(uint64_t first, uint64_t turns, const TurnBatches& batches) {
    ops_.clear();
    for (uint64_t i = 0; i < turns; ++i) batches.AppendOps(churn_.At(first + i), ops_);
    FloorMap::Translate(ops_, floor_ops_);
    MaskFloorMap::Translate(ops_, mask_ops_);
  }

  const Churn churn_;
  TurnBatches each_;
  TurnBatches merged_;
  uint64_t turn_ = 0;
  PrefixIndex index_;
  FloorMap floor_;
  MaskFloorMap masks_;
  std::vector<ResidencyOp> ops_;
  std::vector<FloorMap::Op> floor_ops_;
  std::vector<MaskFloorMap::Op> mask_ops_;
};

struct ApplySamples {
  Samples ratio;
  Samples prefetched_ratio;
  Samples masks_ratio;
  Samples index;
  Samples floor;

  void Add(const Slice& slice, bool prefetched) {
    index.Add(slice.index);
    masks_ratio.Add(slice.index / slice.masks);
    (prefetched ? prefetched_ratio : ratio).Add(slice.index / slice.floor);
    if (!prefetched) floor.Add(slice.floor);
  }
  void Print(Report& report, const std::string& name) const {
    report.Target(name, ratio.median(), "ratio", kApplyTarget);
    report.Figure(name + ".p10", ratio.Quantile(0.1), "ratio");
    report.Figure(name + ".p90", ratio.Quantile(0.9), "ratio");
    report.Figure(name + ".index", index.median(), "ns/op");
    report.Figure(name + ".floor", floor.median(), "ns/op");
    report.Figure(name + ".to_prefetched", prefetched_ratio.median(), "ratio");
    report.Figure(name + ".to_masks", masks_ratio.median(), "ratio");
  }
};

}  // namespace

int RunApplyBench(const ApplyBenchOptions& options) {
  Report report("apply", kApplyMethod, options.fleet.json);
  for (const ChurnConfig& config : FleetCases(options.fleet, {1, 4})) {
    const std::string name = "apply.holders" + std::to_string(config.holders);
    const auto fleet = std::make_unique<ApplyCase>(config);
    if (Status status = fleet->Fill(report, name); !status.ok()) return tools::Fail(status);
    std::array<ApplySamples, 2> samples;
    for (int64_t i = 0; i < options.slices * 4; ++i) {
      const bool each = i % 2 == 0;
      const bool prefetched = i / 2 % 2 == 1;
      const Slice slice =
          fleet->Run(each ? Removes::kEach : Removes::kMerged, i / 4 % 2 == 0, prefetched);
      samples[each ? 0 : 1].Add(slice, prefetched);
    }
    if (Status status = fleet->Check(); !status.ok()) return tools::Fail(status);
    samples[0].Print(report, name + ".each");
    samples[1].Print(report, name + ".merged");
  }
  return report.Finish();
}

}  // namespace kvcast::bench
