// Simulations of a fleet with simulated engines, the real index and a rule. The index is exact,
// runs are repeatable, and every request ends.
// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/fleet_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "apps/simulate/random.h"
#include "tests/apps/simulate/fleet.h"

namespace kvcast::simulate {
namespace {

constexpr int64_t kRequests = 60;
constexpr size_t kCounted = 51;  // the first 15 % are the warm-up

class EachModel : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EachModel, IndexWithoutDelayEqualsEveryLookup) {
  SmallFleet fleet(GetParam(), SharedSlice(kRequests));
  fleet.options.delay_s = 0;
  const RunResult result = fleet.Run("kvcast");
  EXPECT_EQ(result.exact_checked, kRequests);
  EXPECT_EQ(result.exact_equal, result.exact_checked);
  EXPECT_EQ(result.first_token_s.size(), kCounted);
  EXPECT_GT(result.reused_tokens, 0);
  EXPECT_EQ(result.batches_left, 0);
}

std::vector<std::string_view> Names() {
  std::vector<std::string_view> names;
  for (const SimModel& model : SimModels()) names.push_back(model.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Models, EachModel, ::testing::ValuesIn(Names()));

TEST(Fleet, FullOnlyIndexPromisesTokensThatAWindowModelHasEvicted) {
  SmallFleet fleet("hybrid", SharedSlice(kRequests));
  fleet.options.delay_s = 0;
  const RunResult exact = fleet.Run("dynamo");
  const RunResult full = fleet.Run("dynamo", IndexKind::kFullOnly);
  EXPECT_EQ(full.exact_equal, full.exact_checked);  // the check uses the exact index
  EXPECT_GT(full.wrong_promise_tokens, exact.wrong_promise_tokens);
}

TEST(Fleet, ApproximateIndexPromisesFromRoutingAlone) {
  const SmallFleet fleet("full", SharedSlice(kRequests));
  const RunResult result = fleet.Run("dynamo", IndexKind::kApproximate);
  EXPECT_GT(result.reused_tokens, 0);
  // The approximate index still promises evicted blocks.
  EXPECT_GT(result.wrong_promise_tokens, fleet.Run("dynamo").wrong_promise_tokens);
}

TEST(Fleet, TwoRunsAreEqual) {
  SmallFleet fleet("hybrid", SharedSlice(kRequests));
  fleet.options.loss = 0.05;
  fleet.options.kill_at_s = 5;
  // The second rule has many equal costs, so it uses the random draws.
  for (const auto& [rule, kind] :
       {std::pair{"kvcast", IndexKind::kExact}, {"least_loaded", IndexKind::kApproximate}}) {
    const RunResult a = fleet.Run(rule, kind);
    const RunResult b = fleet.Run(rule, kind);
    EXPECT_EQ(a.first_token_s, b.first_token_s);
    EXPECT_EQ(a.prediction_error, b.prediction_error);
    EXPECT_EQ(a.by_engine, b.by_engine);
    EXPECT_EQ(a.reuse_over_time, b.reuse_over_time);
    EXPECT_EQ(a.seconds, b.seconds);
    const auto numbers = [](const RunResult& r) {
      return std::vector<int64_t>{r.prompt_tokens,
                                  r.reused_tokens,
                                  r.loaded_tokens,
                                  r.missed_tokens,
                                  r.wrong_promise_tokens,
                                  r.exact_checked,
                                  r.exact_equal,
                                  r.refused,
                                  r.preempted,
                                  r.batches,
                                  r.batches_left};
    };
    EXPECT_EQ(numbers(a), numbers(b));
  }
}

constexpr double kReportDelay = 0.001;  // seconds from an engine to the rule
constexpr double kPredicted = 0.5;      // the time to each first token that the listener predicts

// The batches and the reports that a Listener got.
struct Reports {
  int64_t batches = 0;
  int64_t removed = 0;
  std::vector<int64_t> admitted, answered, finished;
  std::vector<int64_t> batches_at_choice;
  std::vector<double> usage_at_choice;  // of the first engine
  std::map<size_t, double> chosen_s;    // by request: time of the latest choice
  std::vector<double> first_token_s;    // from the latest choice, in the order of `answered`
  std::vector<double> finished_s;       // times of the ends, in the order of `finished`
};
Reports reports;

// Writes its reports to `reports`, and chooses the engines in turn.
class Listener final : public Rule {
 public:
  size_t Choose(const RuleInput& input) override {
    reports.batches_at_choice.push_back(reports.batches);
    reports.usage_at_choice.push_back(input.engines[0].cache_usage);
    reports.chosen_s[input.request] = input.now_s;
    return next_++ % input.engines.size();
  }
  void Admitted(size_t r, int64_t, double) override {
    reports.admitted.push_back(static_cast<int64_t>(r));
  }
  void FirstToken(size_t r, double now_s) override {
    reports.answered.push_back(static_cast<int64_t>(r));
    reports.first_token_s.push_back(now_s - kReportDelay - reports.chosen_s.at(r));
  }
  void Finished(size_t r, double now_s) override {
    reports.finished.push_back(static_cast<int64_t>(r));
    reports.finished_s.push_back(now_s - kReportDelay);
  }
  std::optional<double> PredictedFirstToken() const override { return kPredicted; }
  void Applied(size_t, const EventBatch&) override { ++reports.batches; }
  void Removed(size_t) override { ++reports.removed; }

 private:
  size_t next_ = 0;
};

RunResult RunWithListener(const SmallFleet& fleet) {
  static const RuleInfo info{"listener", "", "", {}, [](const RuleParameters&, const RuleFleet&) {
                               return std::unique_ptr<Rule>(new Listener);
                             }};
  reports = {};
  return fleet.Run(RuleChoice{"listener", &info, {}});
}

std::vector<int64_t> EachRequest() {
  std::vector<int64_t> all(kRequests);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Fleet, EachRequestIsReportedOnce) {
  const RunResult result = RunWithListener(SmallFleet("full", SharedSlice(kRequests)));
  EXPECT_THAT(reports.admitted, ::testing::UnorderedElementsAreArray(EachRequest()));
  EXPECT_THAT(reports.answered, ::testing::UnorderedElementsAreArray(EachRequest()));
  EXPECT_THAT(reports.finished, ::testing::UnorderedElementsAreArray(EachRequest()));
  EXPECT_EQ(result.by_engine, (std::vector<int64_t>{20, 20, 20}));
  EXPECT_GT(result.batches, 0);
  EXPECT_EQ(reports.batches, result.batches);
}

TEST(Fleet, LostBatchesAreAppliedAfterTheNextBatch) {
  SmallFleet fleet("full", SharedSlice(kRequests));
  fleet.options.delay_s = 0.05;
  const RunResult whole = RunWithListener(fleet);
  EXPECT_EQ(reports.batches, whole.batches);
  fleet.options.loss = 0.05;
  const RunResult lossy = RunWithListener(fleet);
  EXPECT_EQ(lossy.batches, whole.batches);
  EXPECT_EQ(reports.batches + lossy.batches_left, lossy.batches);
  EXPECT_LT(lossy.batches_left, 3);  // at most the last batch of each engine
  EXPECT_EQ(reports.finished.size(), size_t{kRequests});
  // While a batch is missing, the index may differ from the engine, and no admission is checked.
  EXPECT_EQ(lossy.exact_equal, lossy.exact_checked);
  EXPECT_LT(lossy.exact_checked, whole.exact_checked);
}

TEST(Fleet, BatchesAfterALossWaitForTheReplay) {
  // All batches of the first request are published in less than 100 s. The second request comes
  // after 2000 s. By then, all batches before the first loss have arrived, but no replay has
  // arrived.
  Slice slice = SharedSlice(2);
  slice.requests[0].output_tokens = 1000;
  slice.requests[1].delay_s = 2000;
  slice.requests[1].after = 0;
  SmallFleet fleet("full", std::move(slice), 1);
  fleet.options.delay_s = 1000;
  const RunResult whole = RunWithListener(fleet);
  const int64_t first = reports.batches_at_choice.at(1);
  ASSERT_GT(first, 10);
  for (fleet.options.seed = 1; fleet.options.seed < 20; ++fleet.options.seed) {
    fleet.options.loss = 0.2;
    Random losses(Mix(fleet.options.seed, 2));
    int64_t before = 0;  // batches before the first loss
    while (before < first && losses.Unit() >= fleet.options.loss) ++before;
    EXPECT_EQ(RunWithListener(fleet).batches, whole.batches);
    EXPECT_EQ(reports.batches_at_choice.at(1), before) << "seed " << fleet.options.seed;
  }
}

TEST(Fleet, IndexWithoutAnyBatchIsEmpty) {
  SmallFleet fleet("full", SharedSlice(kRequests));
  fleet.options.loss = 1;
  const RunResult result = fleet.Run("kvcast");
  EXPECT_EQ(result.batches_left, result.batches);
  EXPECT_EQ(result.wrong_promise_tokens, 0);
  EXPECT_EQ(result.missed_tokens, result.reused_tokens);
}

TEST(Fleet, RequestsOfAnEndedEngineEndElsewhere) {
  SmallFleet fleet("full", SharedSlice(kRequests));
  fleet.options.kill_at_s = 4;  // the last request arrives after about 12 s
  const RunResult result = RunWithListener(fleet);
  EXPECT_EQ(reports.removed, 1);
  EXPECT_THAT(reports.finished, ::testing::UnorderedElementsAreArray(EachRequest()));
  EXPECT_EQ(result.first_token_s.size(), kCounted);
  const auto sent = std::accumulate(result.by_engine.begin(), result.by_engine.end(), int64_t{0});
  EXPECT_GT(sent, kRequests);  // some were sent twice
  EXPECT_LT(result.by_engine[0], 10);
  EXPECT_EQ(result.exact_equal, result.exact_checked);
}

TEST(Fleet, APredictionCountsFromTheLatestChoice) {
  Slice slice = SharedSlice(2);
  for (WorkloadRequest& request : slice.requests) request.delay_s = 0;
  SmallFleet fleet("full", std::move(slice), 2);
  fleet.options.kill_at_s = 1e-6;  // during the first step of both engines
  const RunResult result = RunWithListener(fleet);
  ASSERT_EQ(reports.batches_at_choice.size(), 3u) << "one request was sent twice";
  std::vector<double> errors;
  for (const double real_s : reports.first_token_s) {
    errors.push_back(std::abs(kPredicted - real_s) / real_s);
  }
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_THAT(result.prediction_error, ::testing::Pointwise(::testing::DoubleNear(1e-6), errors));
}

// Without the report of the second engine, the load book of the rule would count the prompt as
// prefill work until the request ends.
TEST(Fleet, EachEngineReportsTheFirstTokenOfARequest) {
  Slice slice = SharedSlice(2);
  for (WorkloadRequest& request : slice.requests) request.delay_s = 0;
  slice.requests[0].output_tokens = 1000;
  SmallFleet fleet("full", std::move(slice), 2);
  RunWithListener(fleet);
  const auto index = std::ranges::find(reports.answered, 0) - reports.answered.begin();
  // The first engine ends after the first token of the first request.
  fleet.options.kill_at_s = reports.first_token_s.at(static_cast<size_t>(index)) + kReportDelay;
  RunWithListener(fleet);
  EXPECT_EQ(reports.removed, 1);
  EXPECT_EQ(std::ranges::count(reports.answered, 0), 2);
}

// The first request ends with the second step of the engine. The second request arrives during this
// step.
TEST(Fleet, ARuleDoesNotSeeTheBlocksThatAStepInProgressFrees) {
  Slice slice = SharedSlice(2);
  slice.requests[0].delay_s = 0;
  slice.requests[0].output_tokens = 2;
  slice.requests[1].after = 0;
  RunWithListener(SmallFleet("full", slice, 1));
  ASSERT_EQ(reports.finished.at(0), 0);
  EXPECT_EQ(reports.usage_at_choice, (std::vector<double>{0, 0}));
  slice.requests[1].after = kNoRequest;
  slice.requests[1].delay_s = reports.finished_s.at(0) - 1e-4;
  SmallFleet fleet("full", std::move(slice), 1);
  fleet.time_scale = 1;
  RunWithListener(fleet);
  EXPECT_GT(reports.usage_at_choice.at(1), 0);
}

TEST(Fleet, EndOfAnIdleEngineDoesNotDelayTheEndOfTheRun) {
  SmallFleet fleet("full", SharedSlice(kRequests));
  const RunResult before = fleet.Run("kvcast");
  fleet.options.kill_at_s = 1e6;
  EXPECT_EQ(fleet.Run("kvcast").seconds, before.seconds);
}

TEST(Fleet, SlowEngineMakesItsRequestsSlow) {
  SmallFleet fleet("full", SharedSlice(kRequests));
  const RunResult even = fleet.Run("round_robin");
  fleet.options.slow_factor = 5;
  const RunResult slow = fleet.Run("round_robin");
  EXPECT_GT(slow.mean_first_token_s(), 1.5 * even.mean_first_token_s());
  // A rule that sees the load sends the slow engine fewer requests.
  EXPECT_LT(fleet.Run("least_loaded").by_engine[0], slow.by_engine[0]);
}

TEST(Fleet, HostMemoryGivesLoadedTokens) {
  SmallFleet fleet("full", SharedSlice(kRequests));
  EXPECT_EQ(fleet.Run("kvcast").loaded_tokens, 0);
  fleet.options.cpu_blocks = 4000;
  fleet.options.delay_s = 0;
  const RunResult result = fleet.Run("kvcast");
  EXPECT_GT(result.loaded_tokens, 0);
  EXPECT_EQ(result.exact_equal, result.exact_checked);
}

TEST(Fleet, SlowFactorAppliesToLoads) {
  SmallFleet fleet("full", SharedSlice(kRequests), 1);
  fleet.options.cpu_blocks = 4000;
  const RunResult even = fleet.Run("round_robin");
  fleet.options.slow_factor = 3;
  fleet.time_scale *= 3;
  const RunResult slow = fleet.Run("round_robin");
  ASSERT_GT(even.loaded_tokens, 0);
  // All times of the run have the same factor.
  EXPECT_NEAR(slow.mean_first_token_s(), 3 * even.mean_first_token_s(),
              1e-6 * slow.mean_first_token_s());
}

TEST(Fleet, HintsChangeTheReuseOfSharedPrompts) {
  const SmallFleet fleet("hybrid", SharedSlice(2 * kRequests));
  EXPECT_NE(fleet.Run("kvcast").reused_tokens, fleet.Run("kvcast:hints=1").reused_tokens);
}

TEST(Fleet, EvictingTailsFirstRaisesTheReuseAndTheIndexStaysExact) {
  SmallFleet fleet("hybrid", SharedSlice(20 * kRequests));
  fleet.options.delay_s = 0;
  const RunResult without = fleet.Run("kvcast:hints=1:will_not_return=0");
  const RunResult with = fleet.Run("kvcast:hints=1");
  EXPECT_GT(with.reused_tokens, without.reused_tokens);
  EXPECT_EQ(with.exact_checked, 20 * kRequests);
  EXPECT_EQ(with.exact_equal, with.exact_checked);
}

TEST(Fleet, ClosedLoopRequestsWaitForTheRequestBefore) {
  Slice slice{.block_tokens = 64, .requests = std::vector<WorkloadRequest>(3)};
  for (size_t r = 0; r < 3; ++r) {
    WorkloadRequest& request = slice.requests[r];
    request.blocks = {1, 2};
    request.prompt_tokens = 128;
    request.output_tokens = 1;
    if (r == 0) continue;
    request.after = static_cast<int64_t>(r) - 1;
    request.delay_s = 100;
  }
  const RunResult result = SmallFleet("full", std::move(slice)).Run("kvcast");
  EXPECT_EQ(result.first_token_s.size(), 3u);
  EXPECT_GT(result.seconds, 200);
  EXPECT_LT(result.seconds, 201);
}

TEST(Fleet, PromptOfOneTokenIsServed) {
  Slice slice{.block_tokens = 64, .requests = std::vector<WorkloadRequest>(1)};
  slice.requests[0].prompt_tokens = 1;
  for (const std::string_view model : Names()) {
    const RunResult result = SmallFleet(model, slice, 1).Run("kvcast");
    EXPECT_EQ(result.first_token_s.size(), 1u) << model;
    EXPECT_EQ(result.refused, 0) << model;
  }
}

TEST(Fleet, RequestThatFitsIntoNoPoolIsRefused) {
  Slice slice = SharedSlice(3);
  slice.requests[1].prompt_tokens = 100;
  slice.requests[1].output_tokens = 1;
  slice.requests[1].blocks.resize(1);
  SmallFleet fleet("full", std::move(slice), 1);
  fleet.cache.num_blocks = 10;  // the two long prompts need more than 30 blocks
  const RunResult result = fleet.Run("kvcast");
  EXPECT_EQ(result.refused, 2);
  EXPECT_EQ(result.first_token_s.size(), 1u);
}

TEST(TimeScale, GivesTheLoadOfOpenLoopSlices) {
  const SimModel model = FindSimModel("full").value();
  Workload workload{.name = "t", .slices = {SharedSlice(100)}, .load = 0.8};
  const Slice& slice = workload.slices[0];
  double work_s = 0;
  for (const WorkloadRequest& request : slice.requests) {
    work_s += model.time.prefill.Seconds(0, request.prompt_tokens);
  }
  const double seconds = slice.requests.back().delay_s * TimeScale(workload, slice, model, 4);
  EXPECT_NEAR(work_s / (4 * seconds), 0.8, 1e-9);
  workload.load.reset();
  EXPECT_EQ(TimeScale(workload, slice, model, 4), 1);
}

TEST(TimeScale, IsOneForClosedLoopAndForOneRequest) {
  const SimModel model = FindSimModel("full").value();
  Workload workload{.name = "t", .slices = {SharedSlice(2)}, .load = 0.8};
  workload.slices[0].requests[1].after = 0;
  EXPECT_EQ(TimeScale(workload, workload.slices[0], model, 4), 1);
  workload.slices[0].requests.resize(1);
  EXPECT_EQ(TimeScale(workload, workload.slices[0], model, 4), 1);
}

TEST(RunResult, QuantilesAreNearestRanks) {
  RunResult result;
  EXPECT_EQ(result.mean_first_token_s(), 0);
  EXPECT_EQ(result.first_token_quantile_s(0.99), 0);
  for (int i = 100; i >= 1; --i) result.first_token_s.push_back(i);
  EXPECT_EQ(result.mean_first_token_s(), 50.5);
  EXPECT_EQ(result.first_token_quantile_s(0.5), 50);
  EXPECT_EQ(result.first_token_quantile_s(0.99), 99);
  EXPECT_EQ(result.first_token_quantile_s(1), 100);
  EXPECT_EQ(result.first_token_quantile_s(0), 1);
}

TEST(IndexKind, NamesAreParsed) {
  for (const IndexKind kind :
       {IndexKind::kExact, IndexKind::kFullOnly, IndexKind::kAnyGroup, IndexKind::kApproximate}) {
    EXPECT_EQ(ParseIndexKind(IndexKindName(kind)), kind);
  }
  EXPECT_EQ(ParseIndexKind("none"), std::nullopt);
}

}  // namespace
}  // namespace kvcast::simulate
