// SPDX-License-Identifier: Apache-2.0
#include "src/tools/sim_engine.h"

#include <algorithm>
#include <utility>

#include "src/tools/trace.h"

namespace kvcast::tools {

struct SimEngine::Running {
  CacheRequest request;
  int64_t number = 0;
  int64_t output_tokens = 1;
  int64_t computed = 0;   // tokens whose KV exists
  int64_t scheduled = 0;  // of the step under way
  bool came_before = false;

  int64_t sampled() const {
    return static_cast<int64_t>(request.tokens.size()) - request.prompt_tokens;
  }
  int64_t missing() const { return static_cast<int64_t>(request.tokens.size()) - computed; }
};

SimEngine::SimEngine(const SimEngineConfig& config, std::unique_ptr<CacheManager> cache,
                     int64_t vocabulary, SimHooks hooks)
    : config_(config),
      cache_(std::move(cache)),
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
  waiting_.push_back(std::move(entry));
}

double SimEngine::Step() {
  int64_t budget = config_.max_batched_tokens;
  preempted_in_step_ = false;
  cache_->BeginStep();
  ScheduleRunning(budget);
  // A step that had to preempt admits nobody: the pool is full.
  if (!preempted_in_step_) ScheduleWaiting(budget);
  PublishPending();
  // The model would copy here; there is no content to copy.
  cache_->ReleaseCopies(cache_->TakeCopies());
  if (budget == config_.max_batched_tokens) return 0;
  ++totals_.steps;
  const double seconds = StepSeconds();
  FinishStep();
  return seconds;
}

bool SimEngine::ResetPrefixCache() {
  const bool reset = cache_->ResetPrefixCache();
  PublishPending();
  return reset;
}

void SimEngine::ScheduleRunning(int64_t& budget) {
  for (const RunningPtr& entry : running_) entry->scheduled = 0;
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const int64_t tokens = std::min(running_[i]->missing(), budget);
    if (!AllocateOrPreempt(i, tokens)) return;
    running_[i]->scheduled = tokens;
    budget -= tokens;
  }
}

// False: the request itself had to go.
bool SimEngine::AllocateOrPreempt(size_t index, int64_t tokens) {
  while (true) {
    Running& entry = *running_[index];
    const AllocateArgs args{.computed_tokens = entry.computed, .new_tokens = tokens};
    if (cache_->AllocateSlots(entry.request, args)) return true;
    PreemptLast();
    if (index >= running_.size()) return false;
  }
}

void SimEngine::PreemptLast() {
  RunningPtr entry = std::move(running_.back());
  running_.pop_back();
  cache_->Free(entry->request);
  entry->computed = 0;
  entry->scheduled = 0;
  ++totals_.preempted;
  preempted_in_step_ = true;
  waiting_.push_front(std::move(entry));
}

void SimEngine::ScheduleWaiting(int64_t& budget) {
  while (!waiting_.empty() && budget > 0 &&
         static_cast<int64_t>(running_.size()) < config_.max_running) {
    Running& entry = *waiting_.front();
    const auto length = static_cast<int64_t>(entry.request.tokens.size());
    const int64_t at_most = length - entry.sampled() + entry.output_tokens;
    if (!cache_->CanEverFit(at_most)) {
      ++totals_.refused;
      hooks_.refused(entry.number);
      waiting_.pop_front();
      continue;
    }
    if (!Admit(entry, budget)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool SimEngine::Admit(Running& entry, int64_t& budget) {
  // Whoever replays the stream up to published_ must see what this lookup sees.
  PublishPending();
  const PrefixHit hit = cache_->GetComputedBlocks(entry.request);
  const auto length = static_cast<int64_t>(entry.request.tokens.size());
  const int64_t tokens = std::min(length - hit.tokens, budget);
  const AllocateArgs args{.new_tokens = tokens, .hit = &hit, .full_sequence_must_fit = true};
  if (!cache_->AllocateSlots(entry.request, args)) return false;
  entry.computed = hit.tokens;
  entry.scheduled = tokens;
  budget -= tokens;
  hooks_.admitted({.number = entry.number,
                   .hit_tokens = hit.tokens,
                   .prompt_tokens = entry.request.prompt_tokens,
                   .sampled_tokens = entry.sampled(),
                   .published = published_});
  if (entry.came_before) {
    totals_.recomputed_again += length - hit.tokens;
  } else {
    ++totals_.admitted;
    totals_.prompt_tokens += entry.request.prompt_tokens;
    totals_.reused_tokens += hit.tokens;
    entry.came_before = true;
  }
  return true;
}

void SimEngine::PublishPending() {
  std::vector<Event> events = cache_->TakeEvents();
  if (!events.empty()) published_ = hooks_.publish(std::move(events));
}

double SimEngine::StepSeconds() const {
  int64_t prefill = 0;
  int64_t decoded = 0;
  for (const RunningPtr& entry : running_) {
    if (entry->scheduled == 1 && entry->missing() == 1) {
      ++decoded;
    } else {
      prefill += entry->scheduled;
    }
  }
  return config_.step_base_s + static_cast<double>(prefill) / config_.prefill_tokens_per_s +
         static_cast<double>(decoded) * config_.decode_token_s;
}

void SimEngine::FinishStep() {
  std::vector<RunningPtr> still_running;
  still_running.reserve(running_.size());
  for (RunningPtr& entry : running_) {
    entry->computed += entry->scheduled;
    const bool samples = entry->scheduled > 0 && entry->missing() == 0;
    entry->scheduled = 0;
    if (samples) {
      entry->request.tokens.push_back(OutputToken(entry->number, entry->sampled(), vocabulary_));
      if (entry->sampled() == 1) hooks_.first_token(entry->number);
      if (entry->sampled() >= entry->output_tokens) {
        cache_->Free(entry->request);
        ++totals_.finished;
        hooks_.finished(entry->number);
        continue;
      }
    }
    still_running.push_back(std::move(entry));
  }
  running_ = std::move(still_running);
}

}  // namespace kvcast::tools
