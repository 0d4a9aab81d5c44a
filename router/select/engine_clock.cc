// SPDX-License-Identifier: Apache-2.0
#include "router/select/engine_clock.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace kvcast {
namespace {

// Without a report for this time, the clock takes its own prediction for the state of the engine.
constexpr double kTrustSeconds = 1;
// Single errors come from requests that the clock does not know. So the slowdown changes only if
// the mean error is large: the weight of a new error in the mean, the errors that it needs, and the
// logarithm of the factor that it must exceed.
constexpr double kErrorWeight = 0.1;
constexpr int kErrors = 10;
constexpr double kErrorBound = 0.25;
// An error counts at most as this. One report that is late for another reason then changes nothing.
constexpr double kErrorMost = 1.5;
// A phase of a step is not known while requests decode. Shorter prompts tell nothing about costs.
constexpr double kStepsOfPhase = 3;
// With more prompts in its queue, the engine's steps are full. Their times then follow from sums.
constexpr size_t kPromptsOfWalk = 12;
// Bound of the steps of one prediction.
constexpr int kMaxSteps = 100'000;

// The work of a step without prompts.
StepWork DecodeStepOf(int64_t decodes, int64_t context) {
  StepWork step;
  step[WorkPart::kSteps] = 1;
  step[WorkPart::kDecodeTokens] = static_cast<double>(decodes);
  step[WorkPart::kDecodeContext] = static_cast<double>(context);
  return step;
}

}  // namespace

// The predicted steps from anchor_s_ on. An engine computes its prompts in order, so the prompts
// that are not complete are the last ones, and only the first of them can have computed tokens.
class EngineClock::Walk {
 public:
  // `added`: a prompt after those of the clock, or nullptr. It must outlive the walk.
  Walk(const EngineClock& clock, const StepCost& cost, const Prefill* added = nullptr)
      : clock_(clock),
        cost_(cost),
        added_(added),
        prompts_(clock.prefills_.size() + (added != nullptr ? 1 : 0)),
        now_s_(clock.anchor_s_),
        start_s_(clock.anchor_s_),
        decodes_(std::ssize(clock.decodes_)),
        decode_context_(clock.decode_context_) {}

  bool done() const { return next_ == prompts_; }
  double now_s() const { return now_s_; }
  // The number of complete prompts.
  size_t complete() const { return next_; }
  // The computed tokens of the first prompt that is not complete.
  int64_t computed() const { return computed_; }
  // The work since start_s, which is the last time before which the engine had no prefill, or the
  // anchor.
  const StepWork& work() const { return work_; }
  double start_s() const { return start_s_; }
  // The engine has not completed a prompt before this time. For engines that report.
  void NotBefore(double time_s) { not_before_s_ = time_s; }
  // True: the engine was decoding at start_s, so the end of its step is a guess.
  bool guessed() const { return guessed_; }

  // Predicts the next step. REQUIRES: !done().
  void Step() {
    if (At(next_).sent_s > now_s_) SkipTo(At(next_).sent_s);
    StepWork step = DecodeStep();
    int64_t budget = std::max<int64_t>(clock_.step_tokens_ - decodes_, 1);
    const size_t first = next_;
    while (!done() && budget > 0 && At(next_).sent_s <= now_s_) {
      const Prefill& prefill = At(next_);
      const int64_t tokens = std::min(budget, prefill.tokens - computed_);
      step.AddPrefill(prefill.context + computed_, tokens);
      budget -= tokens;
      computed_ += tokens;
      if (computed_ < prefill.tokens) break;
      decode_context_ += prefill.context + prefill.tokens;
      computed_ = 0;
      ++next_;
    }
    now_s_ += clock_.slowdown_ * cost_.Of(step);
    if (next_ > first) now_s_ = std::max(now_s_, not_before_s_);
    work_ += step;
    decodes_ += static_cast<int64_t>(next_ - first);
  }

  StepWork DecodeStep() const { return DecodeStepOf(decodes_, decode_context_); }

 private:
  const Prefill& At(size_t i) const {
    return i < clock_.prefills_.size() ? clock_.prefills_[i] : *added_;
  }

  // No prompt waits until `until_s`. Decoding requests go on step by step; a prompt waits for the
  // end of the step in which it arrives.
  void SkipTo(double until_s) {
    if (decodes_ > 0) {
      const double step_s = std::max(clock_.slowdown_ * cost_.Of(DecodeStep()), 1e-6);
      now_s_ += std::ceil((until_s - now_s_) / step_s) * step_s;
      guessed_ = true;
    } else {
      now_s_ = until_s;
      guessed_ = false;
    }
    start_s_ = now_s_;
    work_ = {};
  }

  const EngineClock& clock_;
  const StepCost& cost_;
  const Prefill* added_;
  const size_t prompts_;
  size_t next_ = 0;
  int64_t computed_ = 0;
  double now_s_;
  double start_s_;
  double not_before_s_ = -1e300;
  bool guessed_ = false;
  int64_t decodes_;
  int64_t decode_context_;
  StepWork work_;
};

void EngineClock::Count(const Prefill& prefill) {
  queued_work_.AddPrefill(prefill.context, prefill.tokens);
  queued_tokens_ += prefill.tokens;
}

void EngineClock::Uncount(const Prefill& prefill) {
  StepWork work;
  work.AddPrefill(prefill.context, prefill.tokens);
  queued_work_ -= work;
  queued_tokens_ -= prefill.tokens;
}

void EngineClock::Trust(double now_s, const StepCost& cost) {
  if (reports_ || now_s - anchor_s_ < kTrustSeconds) return;
  Walk walk(*this, cost);
  for (int step = 0; step < kMaxSteps && !walk.done() && walk.now_s() < now_s; ++step) walk.Step();
  Settle(walk, walk.done() ? now_s : walk.now_s());
}

void EngineClock::Sent(uint64_t request, double now_s, int64_t context, int64_t tokens,
                       const StepCost& cost) {
  Trust(now_s, cost);
  if (prefills_.empty() && decodes_.empty()) anchor_s_ = now_s;
  const bool alone = prefills_.empty();
  if (!alone) prefills_.back().alone = false;  // an earlier prompt has not been alone since
  prefills_.push_back({request, now_s, context, std::max<int64_t>(tokens, 1), alone});
  Count(prefills_.back());
}

void EngineClock::Admitted(uint64_t request, int64_t context) {
  const auto it = std::ranges::find(prefills_, request, &Prefill::request);
  if (it == prefills_.end()) return;
  const int64_t end = it->context + it->tokens;
  Uncount(*it);
  it->context = std::clamp<int64_t>(context, 0, end - 1);
  it->tokens = end - it->context;
  Count(*it);
}

// Takes the state after the walk as known, at `now_s`. A prompt that the walk has completed has
// one token left until its report comes, or without reports none.
void EngineClock::Settle(const Walk& walk, double now_s) {
  anchor_s_ = now_s;
  const size_t complete = walk.complete();
  for (size_t i = 0; i < std::min(complete + 1, prefills_.size()); ++i) {
    Prefill& prefill = prefills_[i];
    const int64_t computed = i < complete ? prefill.tokens - 1 : walk.computed();
    Uncount(prefill);
    prefill.context += computed;
    prefill.tokens -= computed;
    Count(prefill);
  }
  if (reports_) return;
  for (size_t i = 0; i < complete; ++i) {
    const Prefill& prefill = prefills_.front();
    decodes_.push_back({prefill.request, prefill.context + prefill.tokens});
    decode_context_ += decodes_.back().context;
    Uncount(prefill);
    prefills_.pop_front();
  }
}

std::optional<EngineClock::Observation> EngineClock::FirstToken(uint64_t request, double now_s,
                                                                const StepCost& cost) {
  reports_ = true;
  const auto found = std::ranges::find(prefills_, request, &Prefill::request);
  if (found == prefills_.end()) return std::nullopt;
  const bool alone = found->alone;
  std::optional<Observation> observation;
  if (now_s > anchor_s_) {  // else the step that ended at anchor_s_ completed this prompt too
    Walk walk(*this, cost);
    const auto position = static_cast<size_t>(found - prefills_.begin());
    for (int step = 0; step < kMaxSteps && walk.complete() <= position; ++step) walk.Step();
    if (alone) observation = Observe(walk, now_s, cost);
    Settle(walk, now_s);
  }
  decodes_.push_back({request, found->context + found->tokens});
  decode_context_ += decodes_.back().context;
  Uncount(*found);
  prefills_.erase(found);
  return observation;
}

std::optional<EngineClock::Observation> EngineClock::Observe(const Walk& walk, double now_s,
                                                             const StepCost& cost) {
  const double predicted_s = walk.now_s() - walk.start_s();
  const double seconds = now_s - walk.start_s();
  if (seconds <= 0 || predicted_s <= 0) return std::nullopt;
  const double phase_s = slowdown_ * cost.Of(walk.DecodeStep());
  if (walk.guessed() && predicted_s < kStepsOfPhase * phase_s) return std::nullopt;
  const Observation observation{walk.work(), seconds / slowdown_};
  NoteError(std::log(seconds / predicted_s));
  return observation;
}

void EngineClock::NoteError(double error) {
  const double bounded = std::clamp(error, -kErrorMost, kErrorMost);
  mean_error_ += std::max(kErrorWeight, 1.0 / ++errors_) * (bounded - mean_error_);
  if (errors_ < kErrors || std::abs(mean_error_) < kErrorBound) return;
  slowdown_ *= std::exp(mean_error_);
  mean_error_ = 0;
  errors_ = 0;
}

void EngineClock::Ended(uint64_t request) {
  const auto prefill = std::ranges::find(prefills_, request, &Prefill::request);
  if (prefill != prefills_.end()) {
    Uncount(*prefill);
    prefills_.erase(prefill);
    return;
  }
  const auto decode = std::ranges::find(decodes_, request, &Decode::request);
  if (decode == decodes_.end()) return;
  decode_context_ -= decode->context;
  decodes_.erase(decode);
}

StepWork EngineClock::DecodeStep() const {
  return DecodeStepOf(std::ssize(decodes_), decode_context_);
}

double EngineClock::StepsOf(int64_t tokens) const {
  const int64_t steps = (tokens + step_tokens_ - 1) / step_tokens_;
  return static_cast<double>(steps);
}

// The time of all prompts in the queue, from anchor_s_ on, if the engine computes without a pause.
double EngineClock::QueueSeconds(const StepCost& cost) const {
  return slowdown_ * (cost.Of(queued_work_) + StepsOf(queued_tokens_) * cost.Of(DecodeStep()));
}

EngineClock::Prediction EngineClock::Predict(double now_s, int64_t context, int64_t tokens,
                                             const StepCost& cost) const {
  constexpr uint64_t kNone = ~uint64_t{0};
  tokens = std::max<int64_t>(tokens, 1);
  const double compute_s =
      slowdown_ * (cost.Prefill(context, tokens) + StepsOf(tokens) * cost.Of(DecodeStep()));
  double end_s = 0;
  if (prefills_.size() > kPromptsOfWalk) {
    end_s = std::max(anchor_s_ + QueueSeconds(cost), now_s) + compute_s;
  } else {
    const Prefill added{kNone, now_s, context, tokens};
    Walk walk(*this, cost, &added);
    if (reports_) walk.NotBefore(now_s - late_s_);
    for (int step = 0; step < kMaxSteps && !walk.done(); ++step) walk.Step();
    end_s = walk.now_s();
  }
  Prediction prediction;
  prediction.first_token_s = std::max(end_s - now_s, 0.0);
  prediction.compute_s = std::min(compute_s, prediction.first_token_s);
  return prediction;
}

}  // namespace kvcast
