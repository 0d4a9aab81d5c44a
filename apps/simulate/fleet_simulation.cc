// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/fleet_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "apps/engine/host_tier.h"
#include "apps/engine/sim_engine.h"
#include "apps/simulate/approximate_index.h"
#include "apps/simulate/load_book.h"
#include "apps/simulate/random.h"
#include "kvcast/router/content_key.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/transfer/host_copy_backend.h"
#include "src/base/check.h"

namespace kvcast::simulate {
namespace {

using tools::Admission;
using tools::SimEngine;

constexpr double kFeedbackDelay = 0.001;  // seconds, from an engine to the router
constexpr double kWarmUpShare = 0.15;     // the warm-up, as a share of the requests
constexpr double kDetectionDelay = 1;     // seconds until the requests of a dead engine are resent
constexpr size_t kTenths = 10;

// The kinds of simulated events. Events at equal times are handled in the order of this
// list.
enum class EventKind : uint8_t { kKill, kStepEnd, kBatch, kFeedback, kArrival, kStep };

enum class Report : uint8_t { kAdmitted, kFirstToken, kFinished };

struct SimEvent {
  double at_s = 0;
  EventKind kind = EventKind::kArrival;
  uint64_t order = 0;  // order of creation; decides if time and kind are equal
  size_t subject = 0;  // an engine, or a request
  Report report = Report::kAdmitted;
  int64_t tokens = 0;

  bool operator<(const SimEvent& other) const {  // for a queue with the earliest at the top
    return std::tuple(at_s, kind, order) > std::tuple(other.at_s, other.kind, other.order);
  }
};

MatchPolicy PolicyOf(IndexKind kind) {
  switch (kind) {
    case IndexKind::kFullOnly:
      return MatchPolicy::kFullOnly;
    case IndexKind::kAnyGroup:
      return MatchPolicy::kAnyGroup;
    default:
      return MatchPolicy::kExact;
  }
}

class Fleet {
 public:
  Fleet(const SliceSetup& setup, const FleetOptions& options, const RuleChoice& rule,
        IndexKind index);
  Status AddEngines();
  RunResult Run();

 private:
  struct Batch {
    EventBatch events;
    bool lost = false;
  };
  struct Engine {
    std::unique_ptr<SimEngine> sim;
    bool stepping = false;
    std::vector<size_t> first_tokens;  // of the step in progress
    std::vector<size_t> finished;
    std::deque<Batch> in_flight;  // published, and not applied to the index
    double applied_at_s = 0;      // time at which the last batch in flight is applied
    double cache_usage = 0;       // see RuleEngine
    uint64_t published = 0;
    bool dead = false;
    std::vector<size_t> requests;  // the unfinished requests
  };
  struct RequestState {
    double arrival_s = 0;  // first arrival
    double routed_s = 0;   // latest choice of an engine
    int64_t predicted_tokens = 0;
    std::optional<double> predicted_s;  // from routed_s to the first token
    size_t engine = 0;
    bool admitted = false;
    bool answered = false;
    bool ended = false;
  };

  void ScheduleAt(double at_s, EventKind kind, size_t subject, Report report = Report::kAdmitted,
                  int64_t tokens = 0) {
    queue_.push({at_s, kind, order_++, subject, report, tokens});
  }
  void Handle(const SimEvent& event);
  void Route(size_t request);
  void Step(size_t engine);
  void EndStep(size_t engine);
  void EndRequest(size_t request);
  void Kill(size_t engine);
  Seq Publish(size_t engine, std::vector<Event> events);
  void ApplyNext(size_t engine);
  void OnAdmitted(size_t engine, const Admission& admission);
  void TakeReport(const SimEvent& event);
  void FillEngines(size_t request, RuleInput& input);
  std::vector<WorkerMatch> Predict(size_t request, const std::vector<uint64_t>& hashes);
  PromptBlocks BlocksOf(size_t request, const std::vector<uint64_t>& hashes) const;
  const WorkloadRequest& RequestOf(size_t request) const { return slice_.requests[request]; }
  bool Counts(size_t request) const { return rank_[request] >= warm_up_; }

  const SliceSetup& setup_;
  const Slice& slice_;
  const Prompts& prompts_;
  const FleetOptions& options_;
  const IndexKind kind_;
  PrefixIndex index_;
  ApproximateIndex approximate_;  // has engines only if kind_ is kApproximate
  LoadBook book_;
  std::unique_ptr<Rule> rule_;
  std::vector<Engine> engines_;
  std::vector<WorkerId> workers_;  // the engines that are not dead
  std::vector<RequestState> requests_;
  std::vector<std::vector<size_t>> followers_;  // by request: the closed-loop requests after it
  std::vector<size_t> rank_;  // by request: order of first arrival; ~0 before the arrival
  size_t arrived_ = 0;
  size_t warm_up_ = 0;
  std::priority_queue<SimEvent> queue_;
  uint64_t order_ = 0;
  double now_s_ = 0;
  Random draws_;
  Random losses_;
  std::vector<std::pair<int64_t, int64_t>> reuse_;  // reused and all prompt tokens, by admission
  std::vector<RuleEngine> rule_engines_;            // scratch
  RunResult result_;
};

RuleFleet FleetOf(const SliceSetup& setup, const FleetOptions& options) {
  RuleFleet fleet;
  fleet.engines = static_cast<size_t>(options.engines);
  fleet.block_tokens = setup.prompts.unit();
  fleet.prefill_tokens_per_s = 1 / setup.model.time.prefill.token_s;
  fleet.load_tokens_per_s = setup.model.load_tokens_per_s;
  fleet.cache_tokens = setup.cache.num_blocks * setup.prompts.unit();
  return fleet;
}

Fleet::Fleet(const SliceSetup& setup, const FleetOptions& options, const RuleChoice& rule,
             IndexKind index)
    : setup_(setup),
      slice_(setup.slice),
      prompts_(setup.prompts),
      options_(options),
      kind_(index),
      approximate_(index == IndexKind::kApproximate ? static_cast<size_t>(options.engines) : 0,
                   setup.prompts.prefixes()),
      book_(static_cast<size_t>(options.engines), setup.slice.requests.size(),
            setup.prompts.prefixes()),
      rule_(rule.info->make(rule.parameters, FleetOf(setup, options))),
      engines_(static_cast<size_t>(options.engines)),
      requests_(setup.slice.requests.size()),
      followers_(setup.slice.requests.size()),
      rank_(setup.slice.requests.size(), ~size_t{0}),
      warm_up_(static_cast<size_t>(kWarmUpShare * static_cast<double>(requests_.size()))),
      draws_(Mix(options.seed, 1)),
      losses_(Mix(options.seed, 2)) {
  result_.by_engine.resize(engines_.size());
}

Status Fleet::AddEngines() {
  for (size_t e = 0; e < engines_.size(); ++e) {
    // XXH3 is the fastest of the engines' hash functions. The results do not depend on the
    // hash function.
    auto hasher = BlockHasher::FromSeed(HashAlgorithm::kXxhash, kDefaultHashSeed);
    if (!hasher.ok()) return hasher.status();
    auto cache = CacheManager::Create(setup_.cache, std::move(hasher).value());
    if (!cache.ok()) return cache.status();
    std::unique_ptr<tools::HostTier> tier;
    if (options_.cpu_blocks > 0) {
      auto backend = MakeHostCopyBackend({.threads = 1});
      if (!backend.ok()) return backend.status();
      tools::HostTierConfig config;
      config.cpu_blocks = options_.cpu_blocks;
      config.kind = options_.offload;
      config.blocks_per_chunk = options_.blocks_per_chunk;
      config.block_bytes = 8;  // only the times matter
      auto made = tools::HostTier::Create(config, **cache, std::move(backend).value());
      if (!made.ok()) return made.status();
      tier = std::move(made).value();
    }
    tools::SimEngineConfig config;
    config.max_batched_tokens = setup_.max_batched_tokens;
    config.step = setup_.model.time;
    config.load_tokens_per_s = setup_.model.load_tokens_per_s;
    if (e == 0) {
      config.step.slowdown = options_.slow_factor;
      config.load_tokens_per_s /= options_.slow_factor;
    }
    WorkerConfig worker;
    worker.name = std::to_string(e);
    worker.groups = setup_.cache.groups;
    worker.hash_block_size = setup_.cache.hash_block_size;
    worker.alignment = HitAlignment(setup_.cache);
    worker.rules = setup_.cache.rules;
    worker.hit_reports = HitReports::kNever;
    worker.replay_tokens = setup_.cache.replay_tokens;
    worker.blocks_per_chunk = options_.blocks_per_chunk;
    worker.offload_rule = tools::OffloadRuleOf(options_.offload);
    const auto id = WorkerId(static_cast<uint32_t>(e));
    if (const Status added = index_.AddWorker(id, worker); !added.ok()) return added;
    workers_.push_back(id);
    engines_[e].sim = std::make_unique<SimEngine>(
        config, std::move(cache).value(), int64_t{1} << 24,
        tools::SimHooks{
            .publish = [this,
                        e](std::vector<Event> events) { return Publish(e, std::move(events)); },
            .admitted = [this, e](const Admission& admission) { OnAdmitted(e, admission); },
            .first_token =
                [this, e](int64_t number) {
                  engines_[e].first_tokens.push_back(static_cast<size_t>(number));
                },
            .finished =
                [this, e](int64_t number) {
                  engines_[e].finished.push_back(static_cast<size_t>(number));
                },
            .refused =
                [this, e](int64_t number) {
                  ++result_.refused;
                  engines_[e].finished.push_back(static_cast<size_t>(number));
                }},
        std::move(tier));
  }
  return {};
}

RunResult Fleet::Run() {
  for (size_t r = 0; r < slice_.requests.size(); ++r) {
    const WorkloadRequest& request = RequestOf(r);
    if (request.after == kNoRequest) {
      ScheduleAt(request.delay_s * setup_.time_scale, EventKind::kArrival, r);
    } else {
      followers_[static_cast<size_t>(request.after)].push_back(r);
    }
  }
  if (options_.kill_at_s) ScheduleAt(*options_.kill_at_s, EventKind::kKill, 0);
  while (!queue_.empty()) {
    const SimEvent next = queue_.top();
    queue_.pop();
    if (next.kind == EventKind::kKill && queue_.empty())
      break;  // every request ended before the kill
    now_s_ = next.at_s;
    Handle(next);
  }
  result_.seconds = now_s_;
  for (const Engine& engine : engines_) result_.batches_left += std::ssize(engine.in_flight);
  for (const Engine& engine : engines_) {
    if (engine.sim) result_.preempted += engine.sim->totals().preempted;
  }
  for (size_t tenth = 0; tenth < kTenths; ++tenth) {
    int64_t reused = 0;
    int64_t all = 0;
    for (size_t i = tenth * reuse_.size() / kTenths; i < (tenth + 1) * reuse_.size() / kTenths;
         ++i) {
      reused += reuse_[i].first;
      all += reuse_[i].second;
    }
    result_.reuse_over_time.push_back(
        all == 0 ? 0 : static_cast<double>(reused) / static_cast<double>(all));
  }
  return std::move(result_);
}

void Fleet::Handle(const SimEvent& event) {
  switch (event.kind) {
    case EventKind::kKill:
      return Kill(event.subject);
    case EventKind::kStepEnd:
      return EndStep(event.subject);
    case EventKind::kBatch:
      return ApplyNext(event.subject);
    case EventKind::kFeedback:
      return TakeReport(event);
    case EventKind::kArrival:
      return Route(event.subject);
    case EventKind::kStep:
      return Step(event.subject);
  }
}

PromptBlocks Fleet::BlocksOf(size_t request, const std::vector<uint64_t>& hashes) const {
  return {.hash_block_size = prompts_.unit(),
          .prompt_tokens = RequestOf(request).prompt_tokens,
          .integer_hashes = hashes};
}

// Returns the matches of the live engines, in the order of workers_.
std::vector<WorkerMatch> Fleet::Predict(size_t request, const std::vector<uint64_t>& hashes) {
  if (kind_ != IndexKind::kApproximate) {
    return index_.Match(BlocksOf(request, hashes), workers_, PolicyOf(kind_));
  }
  std::vector<WorkerMatch> matches;
  const int64_t most = RequestOf(request).prompt_tokens - 1;
  for (const WorkerId worker : workers_) {
    const int64_t held =
        approximate_.Match(worker.value, prompts_.PrefixesOf(request), now_s_) * prompts_.unit();
    WorkerMatch match;
    match.worker = worker;
    match.gpu_tokens = std::min(held, most / prompts_.unit() * prompts_.unit());
    match.with_cpu_tokens = match.gpu_tokens;
    match.with_storage_tokens = match.gpu_tokens;
    matches.push_back(std::move(match));
  }
  return matches;
}

void Fleet::FillEngines(size_t request, RuleInput& input) {
  rule_engines_.clear();
  const auto units = std::ssize(prompts_.PrefixesOf(request));
  for (size_t i = 0; i < workers_.size(); ++i) {
    const size_t e = workers_[i].value;
    const WorkerMatch& match = input.matches[i];
    RuleEngine engine;
    engine.engine = e;
    engine.hit_tokens = match.gpu_tokens;
    engine.hit_with_cpu_tokens = std::max(match.with_cpu_tokens, match.gpu_tokens);
    engine.load = book_.of(e);
    engine.blocks_with_request =
        engine.load.blocks + units - book_.SharedWith(e, prompts_.PrefixesOf(request));
    engine.waiting = engines_[e].sim->waiting();
    engine.cache_usage = engines_[e].cache_usage;
    rule_engines_.push_back(engine);
  }
  input.engines = rule_engines_;
}

void Fleet::Route(size_t r) {
  const WorkloadRequest& request = RequestOf(r);
  RequestState& state = requests_[r];
  if (rank_[r] == ~size_t{0}) {
    rank_[r] = arrived_++;
    state.arrival_s = now_s_;
  }
  const auto names = std::make_shared<const std::vector<uint64_t>>(prompts_.HashesOf(r));
  const std::vector<WorkerMatch> matches = Predict(r, *names);
  KV_CHECK(matches.size() == workers_.size());
  RuleInput input;
  input.request = r;
  input.session = request.session;
  input.prompt_tokens = request.prompt_tokens;
  input.block_tokens = prompts_.unit();
  input.prefixes = prompts_.PrefixesOf(r);
  input.draw = draws_.Unit();
  input.now_s = now_s_;
  input.matches = matches;
  input.names = names;
  FillEngines(r, input);
  const size_t chosen = rule_->Choose(input);
  const RuleEngine& target = rule_engines_[chosen];
  state.engine = target.engine;
  state.routed_s = now_s_;
  state.predicted_tokens = target.hit_tokens;
  state.predicted_s = rule_->PredictedFirstToken();
  book_.Routed(r, target.engine, request.prompt_tokens, target.hit_tokens, input.prefixes);
  if (kind_ == IndexKind::kApproximate) {
    approximate_.Routed(target.engine, input.prefixes, now_s_);
  }
  ++result_.by_engine[target.engine];
  Engine& engine = engines_[target.engine];
  engine.requests.push_back(r);
  engine.sim->Add({.number = static_cast<int64_t>(r),
                   .prompt = prompts_.TokensOf(r),
                   .output_tokens = request.output_tokens,
                   .answer = prompts_.AnswerOf(r),
                   .keep_prefix_tokens = rule_->KeepPrefixTokens(),
                   .will_not_return_after = rule_->WillNotReturnAfter(),
                   .chain = prompts_.ChainOf(r)});
  if (!std::exchange(engine.stepping, true)) ScheduleAt(now_s_, EventKind::kStep, target.engine);
}

void Fleet::Step(size_t e) {
  Engine& engine = engines_[e];
  if (engine.dead) return;
  const double seconds = engine.sim->Step();
  // A step that schedules no request takes no time, and ends the requests that the engine refused.
  ScheduleAt(now_s_ + seconds, EventKind::kStepEnd, e);
}

void Fleet::EndStep(size_t e) {
  Engine& engine = engines_[e];
  if (engine.dead) return;
  for (const size_t r : std::exchange(engine.first_tokens, {})) {
    ScheduleAt(now_s_ + kFeedbackDelay, EventKind::kFeedback, r, Report::kFirstToken);
    RequestState& state = requests_[r];
    // A request that was sent again may have had its first token from the engine that has ended.
    if (std::exchange(state.answered, true)) continue;
    const double real_s = now_s_ - state.routed_s;
    if (Counts(r)) result_.first_token_s.push_back(now_s_ - state.arrival_s);
    if (Counts(r) && state.predicted_s && real_s > 0) {
      result_.prediction_error.push_back(std::abs(*state.predicted_s - real_s) / real_s);
    }
  }
  for (const size_t r : std::exchange(engine.finished, {})) EndRequest(r);
  // SimEngine::Step runs at the start of the step, and already frees the blocks of the requests
  // that end with the step. A rule must not see these free blocks before the end of the step.
  const CacheUsage usage = engine.sim->cache().usage();
  engine.cache_usage = static_cast<double>(usage.total_blocks - usage.free_blocks) /
                       static_cast<double>(usage.total_blocks);
  if (engine.sim->idle()) {
    engine.sim->PublishPending();
    engine.stepping = false;
  } else {
    ScheduleAt(now_s_, EventKind::kStep, e);
  }
}

void Fleet::EndRequest(size_t r) {
  requests_[r].ended = true;
  std::erase(engines_[requests_[r].engine].requests, r);
  ScheduleAt(now_s_ + kFeedbackDelay, EventKind::kFeedback, r, Report::kFinished);
  for (const size_t follower : followers_[r]) {
    ScheduleAt(now_s_ + RequestOf(follower).delay_s, EventKind::kArrival, follower);
  }
}

// Ends an engine: removes its blocks from the index, and sends its requests to other engines.
void Fleet::Kill(size_t e) {
  Engine& engine = engines_[e];
  if (workers_.size() < 2) return;
  engine.dead = true;
  result_.preempted += engine.sim->totals().preempted;
  engine.sim.reset();
  engine.in_flight.clear();
  const auto id = WorkerId(static_cast<uint32_t>(e));
  std::erase(workers_, id);
  index_.RemoveWorker(id);
  if (kind_ == IndexKind::kApproximate) approximate_.Forget(e);
  rule_->Removed(e);
  for (const size_t r : std::exchange(engine.requests, {})) {
    book_.Finished(r, prompts_.PrefixesOf(r));
    requests_[r].admitted = false;
    ScheduleAt(now_s_ + kDetectionDelay, EventKind::kArrival, r);
  }
}

Seq Fleet::Publish(size_t e, std::vector<Event> events) {
  Engine& engine = engines_[e];
  engine.in_flight.push_back({.events = {}, .lost = losses_.Unit() < options_.loss});
  engine.in_flight.back().events.events = std::move(events);
  const uint64_t published = ++engine.published;
  ++result_.batches;
  if (options_.delay_s == 0 && options_.loss == 0) {
    ApplyNext(e);
  } else if (engine.in_flight.back().lost) {
    // The index detects the gap at the next batch that is not lost.
  } else {
    // If earlier batches were lost, the index requests them, and this batch waits for them.
    const auto lost = std::ranges::count(engine.in_flight, true, &Batch::lost);
    double at_s = now_s_ + options_.delay_s;
    if (lost > 0) at_s += 2 * options_.delay_s;
    at_s = std::max(at_s, engine.applied_at_s);  // batches are applied in their order
    engine.applied_at_s = at_s;
    for (Batch& batch : engine.in_flight) batch.lost = false;
    for (ptrdiff_t i = 0; i <= lost; ++i) ScheduleAt(at_s, EventKind::kBatch, e);
  }
  return Seq(published);
}

void Fleet::ApplyNext(size_t e) {
  Engine& engine = engines_[e];
  if (engine.dead || engine.in_flight.empty()) return;
  index_.Apply(WorkerId(static_cast<uint32_t>(e)), engine.in_flight.front().events);
  rule_->Applied(e, engine.in_flight.front().events);
  engine.in_flight.pop_front();
}

void Fleet::OnAdmitted(size_t e, const Admission& admission) {
  if (!admission.first) return;
  const auto r = static_cast<size_t>(admission.number);
  RequestState& state = requests_[r];
  if (std::exchange(state.admitted, true)) return;
  const Engine& engine = engines_[e];
  if (engine.in_flight.empty()) {
    const std::vector<uint64_t> hashes = prompts_.HashesOf(r);
    const WorkerId worker(static_cast<uint32_t>(e));
    const auto matches = index_.Match(BlocksOf(r, hashes), std::span(&worker, 1));
    ++result_.exact_checked;
    result_.exact_equal += matches.front().gpu_tokens == admission.hit_tokens;
  }
  reuse_.emplace_back(admission.hit_tokens + admission.loaded_tokens, admission.prompt_tokens);
  ScheduleAt(now_s_ + kFeedbackDelay, EventKind::kFeedback, r, Report::kAdmitted,
             admission.hit_tokens);
  if (!Counts(r)) return;
  result_.prompt_tokens += admission.prompt_tokens;
  result_.reused_tokens += admission.hit_tokens;
  result_.loaded_tokens += admission.loaded_tokens;
  const int64_t wrong = state.predicted_tokens - admission.hit_tokens;
  result_.wrong_promise_tokens += std::max<int64_t>(wrong, 0);
  result_.missed_tokens += std::max<int64_t>(-wrong, 0);
}

void Fleet::TakeReport(const SimEvent& event) {
  const size_t r = event.subject;
  switch (event.report) {
    case Report::kAdmitted:
      return rule_->Admitted(r, event.tokens, now_s_);
    case Report::kFirstToken:
      book_.FirstToken(r);
      return rule_->FirstToken(r, now_s_);
    case Report::kFinished:
      book_.Finished(r, prompts_.PrefixesOf(r));
      return rule_->Finished(r, now_s_);
  }
}

}  // namespace

std::string_view IndexKindName(IndexKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"exact", "full", "any", "approx"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<IndexKind> ParseIndexKind(std::string_view name) {
  for (const IndexKind kind :
       {IndexKind::kExact, IndexKind::kFullOnly, IndexKind::kAnyGroup, IndexKind::kApproximate}) {
    if (IndexKindName(kind) == name) return kind;
  }
  return std::nullopt;
}

double RunResult::mean_first_token_s() const {
  if (first_token_s.empty()) return 0;
  return std::accumulate(first_token_s.begin(), first_token_s.end(), 0.0) /
         static_cast<double>(first_token_s.size());
}

static double QuantileOf(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

double RunResult::first_token_quantile_s(double q) const { return QuantileOf(first_token_s, q); }

double RunResult::prediction_error_quantile(double q) const {
  return QuantileOf(prediction_error, q);
}

double TimeScale(const Workload& workload, const Slice& slice, const SimModel& model,
                 int64_t engines) {
  if (!workload.load) return 1;
  double work_s = 0;
  double last_s = 0;
  for (const WorkloadRequest& request : slice.requests) {
    if (request.after != kNoRequest) return 1;
    work_s += model.time.prefill.Seconds(0, request.prompt_tokens);
    last_s = std::max(last_s, request.delay_s);
  }
  if (last_s == 0) return 1;
  return work_s / (last_s * static_cast<double>(engines) * *workload.load);
}

Result<RunResult> RunFleet(const SliceSetup& setup, const FleetOptions& options,
                           const RuleChoice& rule, IndexKind index) {
  Fleet fleet(setup, options, rule, index);
  if (const Status added = fleet.AddEngines(); !added.ok()) return added;
  return fleet.Run();
}

}  // namespace kvcast::simulate
