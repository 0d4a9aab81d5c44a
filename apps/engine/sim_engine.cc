// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/sim_engine.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "apps/support/trace.h"
#include "src/base/check.h"

namespace kvcast::tools {

struct SimEngine::Running {
  CacheRequest request;
  int64_t number = 0;
  int64_t output_tokens = 1;
  std::vector<TokenId> answer;  // see SimRequest
  int64_t computed = 0;         // tokens whose KV exists
  int64_t scheduled = 0;        // tokens of the current step, with drafts
  bool drafts = false;     // the previous step sampled a token, so the next step verifies drafts
  int64_t to_check = 0;    // reused tokens whose bytes are checked after the step
  int64_t load_end = 0;    // end of the tokens of the load in progress
  double loaded_at_s = 0;  // model time
  int64_t computed_before = 0;  // tokens whose KV the request had at its preemption
  int64_t reported_loaded = 0;  // loaded tokens that the totals count
  bool was_admitted = false;

  int64_t sampled() const {
    return static_cast<int64_t>(request.tokens.size()) - request.prompt_tokens;
  }
  int64_t missing() const { return static_cast<int64_t>(request.tokens.size()) - computed; }
};

SimEngine::SimEngine(const SimEngineConfig& config, std::unique_ptr<CacheManager> cache,
                     int64_t vocabulary, SimHooks hooks, std::unique_ptr<HostTier> tier)
    : config_(config),
      cache_(std::move(cache)),
      split_(cache_->config(), config.max_batched_tokens),
      tier_(std::move(tier)),
      vocabulary_(vocabulary),
      hooks_(std::move(hooks)) {}

SimEngine::~SimEngine() = default;

void SimEngine::Add(SimRequest request) {
  auto entry = std::make_unique<Running>();
  entry->number = request.number;
  entry->output_tokens = std::max<int64_t>(request.output_tokens, 1);
  entry->request.id = std::to_string(request.number);
  entry->request.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  entry->request.tokens = std::move(request.prompt);
  entry->request.chain = std::move(request.chain);
  entry->request.keep_prefix_tokens = request.keep_prefix_tokens;
  entry->request.will_not_return_after = request.will_not_return_after;
  entry->answer = std::move(request.answer);
  waiting_.push_back(std::move(entry));
}

bool SimEngine::idle() const {
  return waiting_.empty() && loading_.empty() && running_.empty() &&
         (tier_ == nullptr || !tier_->has_pending_work());
}

double SimEngine::Step() {
  int64_t budget = config_.max_batched_tokens;
  preempted_in_step_ = false;
  CompleteCopies();
  cache_->BeginStep();
  ScheduleRunning(budget);
  // After a preemption the pool is full, so the step admits no request.
  if (!preempted_in_step_) ScheduleWaiting(budget);
  ScheduleCopies();
  PublishPending();
  // A real engine runs the copies here. The simulation needs no copy, because a block gets its
  // bytes when it is complete.
  cache_->ReleaseCopies(cache_->TakeCopies());
  const bool computes = budget < config_.max_batched_tokens;
  const bool copies = tier_ != nullptr && tier_->has_pending_work();
  if (!computes && !copies) return 0;
  const double seconds = StepSeconds();
  clock_s_ += seconds;
  if (computes) {
    ++totals_.steps;
    FinishStep();
  }
  if (tier_ != nullptr) tier_->EndStep();
  return seconds;
}

// Finishes the started stores, and the loads whose end time has passed.
void SimEngine::CompleteCopies() {
  if (tier_ == nullptr) return;
  tier_->CompleteStores();
  for (RunningPtr& entry : loading_) {
    if (entry->loaded_at_s > clock_s_) continue;
    if (tier_->CompleteLoad(entry->request)) {
      tier_->Check(entry->request, std::exchange(entry->to_check, 0));
      cache_->CacheBlocks(entry->request, entry->load_end);
      running_.push_back(std::move(entry));
    } else {
      ++totals_.failed_loads;
      totals_.loaded_tokens -= std::exchange(entry->reported_loaded, 0);
      entry->computed = 0;
      entry->to_check = 0;
      cache_->Free(entry->request);
      waiting_.push_front(std::move(entry));
    }
  }
  std::erase(loading_, nullptr);
}

void SimEngine::ScheduleCopies() {
  if (tier_ == nullptr) return;
  step_requests_.clear();
  for (const RunningPtr& entry : running_) {
    if (entry->scheduled == 0) continue;
    step_requests_.push_back({&entry->request, entry->computed, entry->scheduled});
  }
  tier_->BuildStep(step_requests_);
  ended_.clear();
}

bool SimEngine::ResetPrefixCache() {
  const bool reset = cache_->ResetPrefixCache();
  PublishPending();
  return reset;
}

void SimEngine::ScheduleRunning(int64_t& budget) {
  for (const RunningPtr& entry : running_) entry->scheduled = 0;
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const Running& entry = *running_[i];
    const int64_t wanted = entry.missing() + (entry.drafts ? config_.draft_tokens : 0);
    const int64_t room = cache_->config().max_model_len - entry.computed;
    const int64_t tokens =
        split_.ChunkTokens(entry.request, entry.computed, std::min({wanted, budget, room}));
    if (tokens == 0) continue;
    if (!AllocateOrPreempt(i, tokens)) return;
    running_[i]->scheduled = tokens;
    budget -= tokens;
  }
}

// False: the request itself was preempted.
bool SimEngine::AllocateOrPreempt(size_t index, int64_t tokens) {
  while (true) {
    Running& entry = *running_[index];
    const AllocateArgs args{.computed_tokens = entry.computed,
                            .new_tokens = tokens,
                            .lookahead_tokens = config_.draft_tokens};
    if (cache_->AllocateSlots(entry.request, args)) return true;
    PreemptLast();
    if (index >= running_.size()) return false;
  }
}

void SimEngine::PreemptLast() {
  RunningPtr entry = std::move(running_.back());
  running_.pop_back();
  if (tier_ != nullptr) tier_->Preempt(entry->request, entry->computed);
  cache_->Free(entry->request);
  entry->to_check = 0;
  entry->computed_before = std::max(entry->computed_before, std::exchange(entry->computed, 0));
  entry->scheduled = 0;
  entry->drafts = false;
  ++totals_.preempted;
  preempted_in_step_ = true;
  waiting_.push_front(std::move(entry));
}

void SimEngine::ScheduleWaiting(int64_t& budget) {
  size_t next = 0;
  while (next < waiting_.size() && budget > 0 &&
         std::ssize(running_) + std::ssize(loading_) < config_.max_running) {
    const auto it = waiting_.begin() + static_cast<ptrdiff_t>(next);
    Running& entry = **it;
    const auto length = static_cast<int64_t>(entry.request.tokens.size());
    const int64_t at_most = length - entry.sampled() + entry.output_tokens;
    if (!cache_->CanEverFit(at_most)) {
      ++totals_.refused;
      hooks_.refused(entry.number);
      waiting_.erase(it);
      continue;
    }
    const Admitted admitted = Admit(entry, budget);
    if (admitted == Admitted::kNot) return;
    if (admitted == Admitted::kPending) {
      ++next;  // the request keeps its place in the queue; the next step tries it again
      continue;
    }
    (admitted == Admitted::kRunning ? running_ : loading_).push_back(std::move(*it));
    waiting_.erase(it);
  }
}

SimEngine::Admitted SimEngine::Admit(Running& entry, int64_t& budget) {
  // A subscriber that applies the stream up to published_ must have the same blocks as this lookup.
  PublishPending();
  CacheRequest& request = entry.request;
  const PrefixHit hit = cache_->GetComputedBlocks(request);
  request.shared_prefix_boundary = hit.shared_prefix_boundary;
  const int64_t reused = hit.computed_tokens();
  const auto now_ms = static_cast<int64_t>(clock_s_ * 1000);
  const std::optional<int64_t> matched =
      tier_ == nullptr ? 0 : tier_->Match(request, hit.tokens, now_ms);
  if (!matched) return Admitted::kPending;
  const int64_t loadable = *matched;
  const auto length = static_cast<int64_t>(request.tokens.size());
  const int64_t tokens =
      loadable > 0 ? 0 : split_.ChunkTokens(request, reused, std::min(length - reused, budget));
  // The remaining budget reaches no position at which the engine can keep a Mamba state.
  if (loadable == 0 && tokens == 0) return Admitted::kNot;
  // The tokens of the hit that are computed again already have slots.
  const int64_t hit_tokens = reused > 0 ? hit.tokens : 0;
  const int64_t new_tokens = loadable > 0 ? 0 : std::max<int64_t>(0, reused + tokens - hit_tokens);
  const AllocateArgs args{.new_tokens = new_tokens,
                          .lookahead_tokens = loadable > 0 ? 0 : config_.draft_tokens,
                          .external_tokens = loadable,
                          .hit = &hit,
                          .full_sequence_must_fit = true,
                          .delay_caching = loadable > 0};
  if (!cache_->AllocateSlots(request, args)) return Admitted::kNot;
  entry.computed = reused;
  entry.scheduled = tokens;
  entry.to_check = reused;
  budget -= tokens;
  // AfterAlloc does not fail, because `loadable` is the result of Match in this step.
  if (tier_ != nullptr) KV_CHECK(tier_->AfterAlloc(request, loadable).ok());
  // A request that loads all of its tokens must compute the last token again.
  const int64_t reusable = std::min(reused + loadable, length - 1);
  Report(entry, hit_tokens, reusable - reused);
  if (loadable == 0) return Admitted::kRunning;
  entry.computed = reusable;
  entry.load_end = reused + loadable;
  // A load that ends inside a block copies the whole block.
  const int64_t hash_block_size = cache_->config().hash_block_size;
  entry.to_check = CeilDiv(entry.load_end, hash_block_size) * hash_block_size;
  loads_end_s_ =
      std::max(loads_end_s_, clock_s_) + static_cast<double>(loadable) / config_.load_tokens_per_s;
  entry.loaded_at_s = loads_end_s_;
  return Admitted::kLoading;
}

void SimEngine::Report(Running& entry, int64_t hit_tokens, int64_t loaded_tokens) {
  hooks_.admitted({.number = entry.number,
                   .hit_tokens = hit_tokens,
                   .loaded_tokens = loaded_tokens,
                   .prompt_tokens = entry.request.prompt_tokens,
                   .sampled_tokens = entry.sampled(),
                   .first = !entry.was_admitted,
                   .published = published_});
  if (std::exchange(entry.was_admitted, true)) return;
  ++totals_.admitted;
  totals_.prompt_tokens += entry.request.prompt_tokens;
  totals_.reused_tokens += hit_tokens;
  totals_.loaded_tokens += loaded_tokens;
  entry.reported_loaded = loaded_tokens;
}

void SimEngine::PublishPending() {
  std::vector<Event> events = cache_->TakeEvents();
  if (tier_ != nullptr) {
    std::vector<Event> host = tier_->TakeEvents();
    std::move(host.begin(), host.end(), std::back_inserter(events));
  }
  if (!events.empty()) published_ = hooks_.publish(std::move(events));
}

double SimEngine::StepSeconds() const {
  const StepTime& time = config_.step;
  double seconds = time.base_s;
  for (const RunningPtr& entry : running_) {
    if (entry->scheduled == 0) continue;
    if (entry->missing() == 1) {
      const auto read = static_cast<double>(entry->computed);
      seconds += static_cast<double>(entry->scheduled) *
                 (time.decode_token_s + time.decode_context_s * read);
    } else {
      seconds += time.prefill.Seconds(entry->computed, entry->scheduled);
    }
  }
  return seconds * time.slowdown;
}

// Returns the number of accepted drafts of the step. The request and the position of a draft
// determine whether the draft is accepted.
int64_t SimEngine::AcceptedDrafts(const Running& entry) const {
  constexpr int64_t kSteps = 1000;
  const int64_t drafts = entry.scheduled - entry.missing();
  int64_t accepted = 0;
  while (accepted < drafts) {
    const int64_t place = entry.sampled() + accepted;
    const auto draw = static_cast<double>(OutputToken(entry.number + 1, place, kSteps));
    if (draw >= config_.draft_acceptance * kSteps) break;
    ++accepted;
  }
  return accepted;
}

// Samples the tokens at the end of a step. False: the request has all its tokens.
bool SimEngine::Sample(Running& entry) {
  const int64_t accepted = AcceptedDrafts(entry);
  totals_.drafted += entry.scheduled - entry.missing();
  totals_.drafts_accepted += accepted;
  const int64_t known = static_cast<int64_t>(entry.request.tokens.size());
  const bool first = entry.sampled() == 0;
  for (int64_t i = 0; i <= accepted && entry.sampled() < entry.output_tokens; ++i) {
    const int64_t k = entry.sampled();
    entry.request.tokens.push_back(entry.answer.empty() ? OutputToken(entry.number, k, vocabulary_)
                                                        : entry.answer[static_cast<size_t>(k)]);
  }
  entry.computed = static_cast<int64_t>(entry.request.tokens.size()) - 1;
  entry.drafts = config_.draft_tokens > 0;
  if (tier_ != nullptr) tier_->Compute(entry.request, known, entry.computed);
  // With drafts, vLLM from v0.33 on caches the newly verified tokens when the step ends.
  if (entry.drafts && cache_->config().rules >= EngineRules::kV033) {
    cache_->CacheBlocks(entry.request, entry.computed);
  }
  if (first) hooks_.first_token(entry.number);
  return entry.sampled() < entry.output_tokens;
}

void SimEngine::FinishStep() {
  std::vector<RunningPtr> still_running;
  still_running.reserve(running_.size());
  if (tier_ != nullptr) {
    for (const RunningPtr& entry : running_) {
      const auto known = static_cast<int64_t>(entry->request.tokens.size());
      tier_->Compute(entry->request, entry->computed,
                     std::min(known, entry->computed + entry->scheduled));
    }
    // The check comes after all requests have computed, because a request may reuse blocks that
    // another request computes in the same step.
    for (const RunningPtr& entry : running_) {
      tier_->Check(entry->request, std::exchange(entry->to_check, 0));
    }
  }
  for (RunningPtr& entry : running_) {
    const int64_t again = std::min(entry->computed + entry->scheduled, entry->computed_before);
    totals_.recomputed_again += std::max<int64_t>(again - entry->computed, 0);
    const bool samples = entry->scheduled > 0 && entry->scheduled >= entry->missing();
    const bool continues = !samples || Sample(*entry);
    if (!samples) entry->computed += entry->scheduled;
    totals_.computed_tokens += entry->scheduled;
    entry->scheduled = 0;
    if (continues) {
      still_running.push_back(std::move(entry));
      continue;
    }
    if (tier_ != nullptr) tier_->Finish(entry->request, entry->computed);
    cache_->Free(entry->request, /*ended=*/true);
    ++totals_.finished;
    hooks_.finished(entry->number);
    if (tier_ != nullptr) ended_.push_back(std::move(entry));
  }
  running_ = std::move(still_running);
}

}  // namespace kvcast::tools
