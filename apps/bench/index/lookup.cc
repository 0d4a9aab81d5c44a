// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/fleet.h"
#include "apps/bench/index/floor_map.h"
#include "apps/bench/index/options.h"
#include "apps/bench/index/report.h"
#include "apps/bench/index/writer.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr double kP50Target = 0.3;
constexpr double kP99Target = 0.6;
constexpr double kBusyToIdleTarget = 2;
// Number of consecutive queries, and of consecutive probes. One such series takes about as long as
// a scheduler's time slice.
constexpr int64_t kRun = 32;

constexpr char kLookupMethod[] =
    "Compares PrefixIndex::Match with a plain hash map. A query matches a prompt over all\n"
    "workers. The map is an absl::flat_hash_map<uint64,uint64> with one entry per (worker,\n"
    "tier, group, block). It gets one prefetched probe per block of the prompt. Both run in one\n"
    "process, alternate, and are timed separately. The prompts are drawn from all held prompts.\n"
    "Their hashes are made before the measurement. busy: another thread applies events during\n"
    "the queries (see \"bench apply\"). full, half, miss: the part of the prompt that is held.\n"
    "mixed: a part of random length. Each answer is checked: its length, and the number of\n"
    "workers that hold the part. An answer about an evicted prompt is not checked.";

enum class Depth : uint8_t { kFull, kHalf, kMiss, kMixed };
constexpr Depth kDepths[] = {Depth::kFull, Depth::kHalf, Depth::kMixed, Depth::kMiss};

const char* NameOf(Depth depth) {
  switch (depth) {
    case Depth::kFull:
      return "full";
    case Depth::kHalf:
      return "half";
    case Depth::kMiss:
      return "miss";
    case Depth::kMixed:
      break;
  }
  return "mixed";
}

struct Timings {
  Samples query;
  Samples floor;
  int64_t wrong = 0;
};

// An index, and a map with one entry for each residency of the same fleet.
class LookupCase {
 public:
  explicit LookupCase(const ChurnConfig& config)
      : churn_(config), blocks_(static_cast<size_t>(config.blocks)) {
    keys_.resize(blocks_);
    chain_.resize(blocks_);
  }

  Status Fill() {
    if (Status status = AddFleet(churn_.config(), index_); !status.ok()) return status;
    FillIndex(churn_, index_);
    TurnBatches batches(churn_, Removes::kMerged);
    std::vector<ResidencyOp> ops;
    std::vector<FloorMap::Op> floor_ops;
    for (uint64_t turn = 0; turn < churn_.steady_turn(); ++turn) {
      ops.clear();
      batches.AppendOps(churn_.At(turn), ops);
      FloorMap::Translate(ops, floor_ops);
      floor_.Apply(floor_ops);
    }
    return CheckFleet(churn_, index_);
  }

  Writer& writer() { return writer_; }

  Timings Run(Depth depth, int64_t queries) {
    Timings timings;
    timings.query.Reserve(static_cast<size_t>(queries));
    timings.floor.Reserve(static_cast<size_t>(queries));
    for (int64_t done = 0; done < queries; done += kRun) {
      for (int64_t i = 0; i < kRun; ++i) Query(depth, timings);
      for (int64_t i = 0; i < kRun; ++i) Probe(depth, timings);
    }
    return timings;
  }

 private:
  size_t DrawHeld(Depth depth) {
    if (depth == Depth::kMiss) return 0;
    if (depth == Depth::kHalf) return blocks_ / 2;
    return depth == Depth::kMixed ? random_() % (blocks_ + 1) : blocks_;
  }
  // Returns a random chain, and the number of its blocks to use. The holders keep the chain until
  // each of them has stored `margin` more chains.
  std::pair<uint64_t, size_t> Draw(Depth depth, uint64_t turn, uint64_t margin) {
    const Churn::Range held = churn_.FullyHeld(turn, margin);
    return {held.first + random_() % (held.last - held.first + 1), DrawHeld(depth)};
  }

  void Query(Depth depth, Timings& timings) {
    // Assumption: during one query, the writer replaces fewer chains than this number.
    const uint64_t margin = churn_.live() / 4;
    const auto [prompt, held] = Draw(depth, writer_.turn(), margin);
    for (size_t i = 0; i < blocks_; ++i) {
      chain_[i] = BlockHash(i < held ? churn_.HashOf(prompt, i) : random_());
    }
    const int64_t tokens = static_cast<int64_t>(blocks_) * kBlockTokens + 1;
    const auto start = Clock::now();
    const std::vector<WorkerMatch> matches = index_.Match(chain_, kBlockTokens, tokens);
    timings.query.Add(NanosecondsSince(start));
    // If this thread was delayed, the writer may have evicted the chain. The answer then cannot be
    // checked.
    if (churn_.FullyHeld(writer_.turn(), 1).first > prompt) return;
    if (!Right(matches, static_cast<int64_t>(held) * kBlockTokens)) ++timings.wrong;
  }
  bool Right(const std::vector<WorkerMatch>& matches, int64_t tokens) const {
    if (std::ssize(matches) != churn_.config().workers) return false;
    int64_t holders = 0;
    for (const WorkerMatch& match : matches) {
      if (match.gpu_tokens != 0 && match.gpu_tokens != tokens) return false;
      if (match.gpu_tokens == tokens) ++holders;
    }
    return tokens == 0 || holders == churn_.config().holders;
  }

  // The writer does not change the map, so the probes use the chains of the first fill.
  void Probe(Depth depth, Timings& timings) {
    const auto [prompt, held] = Draw(depth, churn_.steady_turn(), 0);
    const uint64_t rank = random_() % static_cast<uint64_t>(churn_.config().holders);
    const uint32_t worker = churn_.WorkerOf(prompt, rank).value;
    for (size_t i = 0; i < blocks_; ++i) {
      const uint64_t hash = i < held ? churn_.HashOf(prompt, i) : random_();
      keys_[i] = FloorMap::KeyOf({hash, worker, 0, false});
    }
    const auto start = Clock::now();
    const size_t found = floor_.CountPrefetched(keys_);
    timings.floor.Add(NanosecondsSince(start));
    if (found != held) ++timings.wrong;
  }

  const Churn churn_;
  const size_t blocks_;
  PrefixIndex index_;
  FloorMap floor_;
  std::mt19937_64 random_{1};
  std::vector<BlockHash> chain_;
  std::vector<uint64_t> keys_;
  Writer writer_{churn_, index_};
};

void Print(Report& report, const std::string& name, const Timings& timings) {
  report.Figure(name + ".query_p50", timings.query.median() * 1e-3, "us");
  report.Figure(name + ".query_p99", timings.query.Quantile(0.99) * 1e-3, "us");
  report.Figure(name + ".floor_p50", timings.floor.median() * 1e-3, "us");
  report.Figure(name + ".floor_p99", timings.floor.Quantile(0.99) * 1e-3, "us");
}

double Ratio(const Timings& timings, double q) {
  return timings.query.Quantile(q) / timings.floor.Quantile(q);
}

// Returns the number of wrong answers.
int64_t RunCell(LookupCase& fleet, const std::string& name, Depth depth,
                const LookupBenchOptions& options, Report& report) {
  const Timings idle = fleet.Run(depth, options.queries);
  fleet.writer().Start(options.write_rate);
  const Timings busy = fleet.Run(depth, options.queries);
  const double write_rate = fleet.writer().Stop();
  report.Target(name + ".p50", Ratio(busy, 0.5), "ratio", kP50Target);
  report.Target(name + ".p99", Ratio(busy, 0.99), "ratio", kP99Target);
  report.Target(name + ".p99_busy_to_idle", busy.query.Quantile(0.99) / idle.query.Quantile(0.99),
                "ratio", kBusyToIdleTarget);
  report.Figure(name + ".idle.p50", Ratio(idle, 0.5), "ratio");
  report.Figure(name + ".idle.p99", Ratio(idle, 0.99), "ratio");
  Print(report, name + ".busy", busy);
  Print(report, name + ".idle", idle);
  report.Figure(name + ".written", write_rate * 1e-6, "M ops/s");
  return idle.wrong + busy.wrong;
}

}  // namespace

int RunLookupBench(const LookupBenchOptions& options) {
  Report report("lookup", kLookupMethod, options.fleet.json);
  int64_t wrong = 0;
  for (const ChurnConfig& config : FleetCases(options.fleet, {1, 4, 64})) {
    const std::string name = "lookup.holders" + std::to_string(config.holders);
    const auto fleet = std::make_unique<LookupCase>(config);
    if (Status status = fleet->Fill(); !status.ok()) return tools::Fail(status);
    for (const Depth depth : kDepths) {
      if (options.depth != "all" && options.depth != NameOf(depth)) continue;
      wrong += RunCell(*fleet, name + "." + NameOf(depth), depth, options, report);
    }
  }
  report.Target("lookup.wrong_answers", static_cast<double>(wrong), "", 0);
  const int exit_code = report.Finish();
  return wrong == 0 ? exit_code : 1;
}

}  // namespace kvcast::bench
