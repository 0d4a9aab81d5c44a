// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/fleet.h"
#include "apps/bench/index/options.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr double kRemoveP99Target = 1.1;

constexpr char kRemoveMethod[] =
    "A worker with --victim blocks is removed from a fleet: RemoveWorker, then Reclaim until no\n"
    "work is left. Every --every-us microseconds, another thread sends a query for a prompt that\n"
    "this worker and other workers hold. If the process may use two cores, each thread has its\n"
    "own core. A round with a removal lasts from the RemoveWorker call until the blocks of the\n"
    "worker are freed, and at least --seconds. Before it, a round without a removal lasts\n"
    "--seconds. After it, in a third round, a thread first spins for as long as Reclaim took. The\n"
    "spinning thread shows the effect of any busy thread on queries. The time of a query starts\n"
    "when the query is due, so it includes waiting. Each p99 covers the queries of all rounds of\n"
    "one kind. wrong: answers that name the removed worker although the query started after\n"
    "RemoveWorker returned, and answers that miss another holder.";

constexpr WorkerId kVictim{1'000'000};

// Binds the calling thread to the first or the last core that the process may use. The two threads
// of a round then share a core only if the process has one core.
void KeepToCore(bool first) {
  static const cpu_set_t allowed = [] {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    (void)sched_getaffinity(0, sizeof(cores), &cores);
    return cores;
  }();
  int chosen = -1;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && (!first || chosen < 0)) chosen = core;
  }
  if (chosen < 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(chosen, &only);
  (void)sched_setaffinity(0, sizeof(only), &only);
}

class RemoveCase {
 public:
  RemoveCase(const ChurnConfig& config, int64_t victim_blocks)
      : churn_(config),
        victim_chains_(std::max<uint64_t>(
            static_cast<uint64_t>(victim_blocks) / static_cast<uint64_t>(config.blocks), 1)) {}

  Status Fill() {
    if (Status status = AddFleet(churn_.config(), index_); !status.ok()) return status;
    FillIndex(churn_, index_);
    held_ = churn_.FullyHeld(churn_.steady_turn(), 0);
    return CheckFleet(churn_, index_);
  }

  // Adds the victim. The fleet also holds every second prompt of the victim. Only the victim holds
  // the prompts between them.
  Status AddVictim() {
    if (Status status = index_.AddWorker(kVictim, FleetWorker(churn_.config().groups));
        !status.ok()) {
      return status;
    }
    TurnBatches batches(churn_, Removes::kMerged);
    for (uint64_t i = 0; i < victim_chains_; ++i) {
      const uint64_t chain = i % 2 == 0 ? SharedChain(i) : kOwnChains + i;
      const Churn::Turn turn{.worker = kVictim, .stored = chain, .removed = std::nullopt};
      for (const EventBatch& batch : batches.Make(turn)) index_.Apply(kVictim, batch);
    }
    removed_ = false;
    return {};
  }

  struct Round {
    Samples queries;
    double call_s = 0;
    double reclaim_s = 0;
    int64_t wrong = 0;
  };
  // Runs a round. This thread first spins for `loop_s` seconds. If `remove` is true, this thread
  // then removes the victim.
  Round Run(const RemoveBenchOptions& options, bool remove, double loop_s = 0) {
    Round round;
    std::atomic<bool> ending = false;
    const std::chrono::microseconds every(options.every_us);
    KeepToCore(/*first=*/true);
    std::thread asking([&] {
      KeepToCore(/*first=*/false);
      Ask(round, ending, every);
    });
    const auto start = Clock::now();
    while (NanosecondsSince(start) < loop_s * 1e9) {
    }
    if (remove) {
      const auto call = Clock::now();
      index_.RemoveWorker(kVictim);
      round.call_s = NanosecondsSince(call) * 1e-9;
      removed_ = true;
      while (index_.Reclaim()) {
      }
      round.reclaim_s = NanosecondsSince(call) * 1e-9 - round.call_s;
    }
    std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(options.seconds)));
    ending = true;
    asking.join();
    return round;
  }

 private:
  static constexpr uint64_t kOwnChains = uint64_t{1} << 40;

  uint64_t SharedChain(uint64_t i) const {
    return held_.first + i % (held_.last - held_.first + 1);
  }

  void Ask(Round& round, const std::atomic<bool>& ending, Clock::duration every) {
    const auto blocks = static_cast<size_t>(churn_.config().blocks);
    std::vector<BlockHash> chain(blocks);
    const int64_t tokens = churn_.config().blocks * kBlockTokens;
    for (auto due = Clock::now(); !ending; due += every) {
      // An even argument of SharedChain selects a chain that the victim also holds.
      const uint64_t prompt = SharedChain(random_() % victim_chains_ / 2 * 2);
      for (size_t i = 0; i < blocks; ++i) chain[i] = BlockHash(churn_.HashOf(prompt, i));
      // The thread spins, because a thread takes longer to wake up than a query takes.
      while (Clock::now() < due) {
      }
      const bool removed = removed_;
      const std::vector<WorkerMatch> matches = index_.Match(chain, kBlockTokens, tokens + 1);
      round.queries.Add(NanosecondsSince(due));
      Judge(matches, tokens, removed, round);
    }
  }
  void Judge(const std::vector<WorkerMatch>& matches, int64_t tokens, bool removed,
             Round& round) const {
    int64_t holders = 0;
    for (const WorkerMatch& match : matches) {
      if (match.worker == kVictim) {
        if (removed) ++round.wrong;
      } else if (match.gpu_tokens == tokens) {
        ++holders;
      }
    }
    if (holders != churn_.config().holders) ++round.wrong;
  }

  const Churn churn_;
  const uint64_t victim_chains_;
  PrefixIndex index_;
  Churn::Range held_{};
  std::mt19937_64 random_{1};
  std::atomic<bool> removed_ = false;
};

}  // namespace

int RunRemoveBench(const RemoveBenchOptions& options) {
  Report report("remove", kRemoveMethod, options.fleet.json);
  const ChurnConfig config = FleetCases(options.fleet, {4}).front();
  const auto fleet = std::make_unique<RemoveCase>(config, options.victim_blocks);
  if (Status status = fleet->Fill(); !status.ok()) return tools::Fail(status);
  Samples calls;
  Samples reclaims;
  Samples with;
  Samples without;
  Samples beside_loop;
  int64_t wrong = 0;
  for (int64_t i = 0; i < options.rounds; ++i) {
    if (Status status = fleet->AddVictim(); !status.ok()) return tools::Fail(status);
    const auto quiet = fleet->Run(options, false);
    const auto removal = fleet->Run(options, true);
    const auto loop = fleet->Run(options, false, removal.reclaim_s);
    calls.Add(removal.call_s);
    reclaims.Add(removal.reclaim_s);
    without.Add(quiet.queries);
    with.Add(removal.queries);
    beside_loop.Add(loop.queries);
    wrong += quiet.wrong + removal.wrong + loop.wrong;
  }
  report.Target("remove.query_p99_with_to_without", with.Quantile(0.99) / without.Quantile(0.99),
                "ratio", kRemoveP99Target);
  report.Target("remove.wrong_answers", static_cast<double>(wrong), "", 0);
  report.Figure("remove.query_p99_with_to_beside_loop",
                with.Quantile(0.99) / beside_loop.Quantile(0.99), "ratio");
  report.Figure("remove.call", calls.median() * 1e6, "us");
  report.Figure("remove.call_max", calls.Quantile(1) * 1e6, "us");
  report.Figure("remove.reclaim", reclaims.median() * 1e3, "ms");
  for (const double q : {0.5, 0.99, 0.999}) {
    const std::string name = "remove.query_p" + std::string(q < 0.6     ? "50"
                                                            : q < 0.995 ? "99"
                                                                        : "99.9");
    report.Figure(name + "_with", with.Quantile(q) * 1e-3, "us");
    report.Figure(name + "_without", without.Quantile(q) * 1e-3, "us");
    report.Figure(name + "_beside_loop", beside_loop.Quantile(q) * 1e-3, "us");
  }
  const int exit_code = report.Finish();
  return wrong == 0 ? exit_code : 1;
}

}  // namespace kvcast::bench
