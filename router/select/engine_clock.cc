// SPDX-License-Identifier: Apache-2.0
#include "router/select/engine_clock.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace kvcast {
namespace {

// If the engine sends no reports, the clock takes the predicted state as the real state of the
// engine when the last known state is older than this time.
constexpr double kTrustSeconds = 1;
// An error is the logarithm of the real time divided by the predicted time. A request that the
// clock does not follow can cause one large error, so the slowdown changes only if the mean error
// is large. The constants are: the weight of a new error in the mean, the least number of errors,
// and the least mean error.
constexpr double kErrorWeight = 0.1;
constexpr int kErrors = 10;
constexpr double kErrorBound = 0.25;
// Larger errors count as this error. One late report then does not change the slowdown.
constexpr double kErrorMost = 1.5;
// While requests decode, the time since the start of the current step is not known. A prompt whose
// predicted time is shorter than this number of decode steps gives no observation.
constexpr double kStepsOfPhase = 3;
// If more prompts than this are in the queue, the engine's steps are full. Sums over the queue then
// replace the prediction of single steps.
constexpr size_t kPromptsOfWalk = 12;
// Sums also replace single steps if the prompts need more steps than this.
constexpr double kStepsOfWalk = 256;
// Maximum number of steps that FirstToken, CompleteOthers or Trust predicts in one call.
constexpr int kMaxSteps = 10'000;
// Prefill::request and Decode::request of the requests of other routers.
constexpr uint64_t kOthers = ~uint64_t{0};
// Maximum number of prompts in prefills_ that represent the prompts of other routers. If the other
// routers have more prompts, the prompts in prefills_ are longer than the real prompts. Together
// they have all tokens of the other routers.
constexpr int64_t kOtherPrompts = 64;

// The work of a step without prompts.
StepWork DecodeStepOf(int64_t decodes, int64_t context) {
  StepWork step;
  step[WorkPart::kSteps] = 1;
  step[WorkPart::kDecodeTokens] = static_cast<double>(decodes);
  step[WorkPart::kDecodeContext] = static_cast<double>(context);
  return step;
}

}  // namespace

// The predicted steps from anchor_s_ on. An engine computes its prompts in order. So the incomplete
// prompts are the last prompts, and only the first incomplete prompt can have computed tokens.
class EngineClock::Walk {
 public:
  // `added`: a prompt after those of the clock, or nullptr. It must outlive the walk.
  Walk(const EngineClock& clock, const StepCost& cost, const Position& from,
       const Prefill* added = nullptr)
      : clock_(clock),
        cost_(cost),
        added_(added),
        prompts_(clock.prefills_.size() + (added != nullptr ? 1 : 0)),
        at_(from) {}

  bool done() const { return at_.next == prompts_; }
  const Position& at() const { return at_; }
  // For engines that send reports: a step that completes a prompt ends at `time_s` or later.
  void NotBefore(double time_s) { not_before_s_ = time_s; }

  // Predicts the next step. REQUIRES: !done().
  void Step() {
    if (Prompt(at_.next).sent_s > at_.now_s) SkipTo(Prompt(at_.next).sent_s);
    StepWork step = DecodeStep();
    int64_t budget = std::max<int64_t>(clock_.step_tokens_ - at_.decodes, 1);
    const size_t first = at_.next;
    while (!done() && budget > 0 && Prompt(at_.next).sent_s <= at_.now_s) {
      const Prefill& prefill = Prompt(at_.next);
      const int64_t tokens = std::min(budget, prefill.tokens - at_.computed);
      step.AddPrefill(prefill.context + at_.computed, tokens);
      budget -= tokens;
      at_.computed += tokens;
      if (at_.computed < prefill.tokens) break;
      at_.decode_context += prefill.context + prefill.tokens;
      at_.computed = 0;
      ++at_.next;
    }
    at_.now_s += clock_.slowdown_ * cost_.Of(step);
    if (at_.next > first) at_.now_s = std::max(at_.now_s, not_before_s_);
    at_.work += step;
    at_.decodes += static_cast<int64_t>(at_.next - first);
  }

  StepWork DecodeStep() const { return DecodeStepOf(at_.decodes, at_.decode_context); }

 private:
  const Prefill& Prompt(size_t i) const {
    return i < clock_.prefills_.size() ? clock_.prefills_[i] : *added_;
  }

  // Skips the time until `until_s`, in which no prompt waits. Decoding requests continue step by
  // step. A prompt waits for the end of the step in which it arrives.
  void SkipTo(double until_s) {
    at_.guessed = at_.decodes > 0;
    if (at_.guessed) {
      const double step_s = std::max(clock_.slowdown_ * cost_.Of(DecodeStep()), 1e-6);
      at_.now_s += std::ceil((until_s - at_.now_s) / step_s) * step_s;
    } else {
      at_.now_s = until_s;
    }
    at_.start_s = at_.now_s;
    at_.work = {};
  }

  const EngineClock& clock_;
  const StepCost& cost_;
  const Prefill* added_;
  const size_t prompts_;
  double not_before_s_ = -1e300;
  Position at_;
};

EngineClock::Position EngineClock::Start() const {
  Position start;
  start.now_s = anchor_s_;
  start.start_s = anchor_s_;
  start.decodes = Decodes();
  start.decode_context = decode_context_;
  return start;
}

const EngineClock::Tail& EngineClock::TailFor(const StepCost& cost) const {
  if (tail_ && tail_->cost == cost) return *tail_;
  Walk walk(*this, cost, Start());
  Tail tail{walk.at(), cost};
  while (true) {
    tail.position = walk.at();
    walk.Step();
    if (tail.position.next == 0 && walk.at().next > 0) tail.first_end_s = walk.at().now_s;
    if (walk.done()) return tail_.emplace(tail);
  }
}

void EngineClock::Count(const Prefill& prefill) {
  queued_work_.AddPrefill(prefill.context, prefill.tokens);
  queued_tokens_ += prefill.tokens;
}

void EngineClock::Uncount(const Prefill& prefill) {
  StepWork work;
  work.AddPrefill(prefill.context, prefill.tokens);
  queued_work_ -= work;
  queued_tokens_ -= prefill.tokens;
  if (queued_tokens_ == 0) queued_work_ = {};
}

void EngineClock::Trust(double now_s, const StepCost& cost) {
  if (reports_ || now_s - anchor_s_ < kTrustSeconds) return;
  tail_.reset();
  Walk walk(*this, cost, Start());
  for (int step = 0; step < kMaxSteps && !walk.done() && walk.at().now_s < now_s; ++step) {
    walk.Step();
  }
  Settle(walk.at(), walk.done() ? now_s : walk.at().now_s);
}

InFlight EngineClock::Own(double now_s, const StepCost& cost) {
  Trust(now_s, cost);
  InFlight own;
  StepWork work;
  for (const Prefill& prefill : prefills_) {
    if (prefill.request == kOthers) continue;
    ++own.prompts;
    own.prompt_tokens += prefill.tokens;
    work.AddPrefill(prefill.context, prefill.tokens);
  }
  own.prompt_pairs = static_cast<int64_t>(work[WorkPart::kPrefillPairs]);
  for (const Decode& decode : decodes_) {
    if (decode.request == kOthers) continue;
    ++own.decodes;
    own.decode_context += decode.context;
  }
  return own;
}

int64_t EngineClock::OtherPrompts() const {
  return std::ranges::count(prefills_, kOthers, &Prefill::request);
}

// others_ has the decodes of other routers. If the engine sends no reports, Settle adds completed
// prompts of other routers to decodes_ a second time.
void EngineClock::RemoveOtherDecodes() {
  std::erase_if(decodes_, [this](const Decode& decode) {
    if (decode.request == kOthers) decode_context_ -= decode.context;
    return decode.request == kOthers;
  });
}

// Removes the oldest prompts of other routers, because they are complete. `left` prompts of other
// routers stay.
void EngineClock::CompleteOthers(int64_t left, double now_s, const StepCost& cost) {
  int64_t complete = OtherPrompts() - left;
  size_t position = 0;
  for (int64_t seen = 0; seen < complete; ++position)
    seen += prefills_[position].request == kOthers;
  if (now_s > anchor_s_) {
    Walk walk(*this, cost, Start());
    for (int step = 0; step < kMaxSteps && walk.at().next < position; ++step) walk.Step();
    Settle(walk.at(), now_s);
    RemoveOtherDecodes();
  }
  complete = OtherPrompts() - left;
  std::erase_if(prefills_, [&](const Prefill& prefill) {
    if (prefill.request != kOthers || complete-- <= 0) return false;
    Uncount(prefill);
    return true;
  });
}

// Distributes the sums of others_ over the prompts of other routers. The lengths of these prompts
// differ by at most one token, and their contexts are equal.
void EngineClock::ShareOutOthers() {
  const int64_t prompts = OtherPrompts();
  if (prompts == 0) return;
  const int64_t tokens = std::max(others_.prompt_tokens, prompts);
  const auto tokens_of = [&](int64_t i) { return tokens / prompts + (i < tokens % prompts); };
  StepWork without_context;
  for (int64_t i = 0; i < prompts; ++i) without_context.AddPrefill(0, tokens_of(i));
  const double pairs =
      static_cast<double>(others_.prompt_pairs) - without_context[WorkPart::kPrefillPairs];
  const auto context = static_cast<int64_t>(std::max(pairs, 0.0) / static_cast<double>(tokens));
  int64_t next = 0;
  for (Prefill& prefill : prefills_) {
    if (prefill.request != kOthers) continue;
    Uncount(prefill);
    prefill.context = context;
    prefill.tokens = tokens_of(next++);
    Count(prefill);
  }
}

void EngineClock::SetOthers(const InFlight& load, double now_s, const StepCost& cost) {
  if (load == others_) return;
  tail_.reset();
  if (prefills_.empty() && Decodes() == 0) anchor_s_ = std::max(anchor_s_, now_s);
  decode_context_ += load.decode_context - others_.decode_context;
  const InFlight before = std::exchange(others_, load);
  const bool same_prompts = load.prompts == before.prompts &&
                            load.prompt_tokens == before.prompt_tokens &&
                            load.prompt_pairs == before.prompt_pairs;
  if (same_prompts) return;  // the engine may have computed a part of these prompts
  for (Prefill& prefill : prefills_) prefill.alone = false;
  RemoveOtherDecodes();
  const int64_t prompts = std::min(load.prompts, kOtherPrompts);
  if (OtherPrompts() > prompts) CompleteOthers(prompts, now_s, cost);
  for (int64_t i = OtherPrompts(); i < prompts; ++i) {
    prefills_.push_back({kOthers, now_s, 0, 1, false});
    Count(prefills_.back());
  }
  ShareOutOthers();
}

void EngineClock::Sent(uint64_t request, double now_s, int64_t context, int64_t tokens,
                       const StepCost& cost) {
  Trust(now_s, cost);
  tail_.reset();
  if (prefills_.empty() && Decodes() == 0) anchor_s_ = now_s;
  const bool alone = prefills_.empty();
  if (!alone) prefills_.back().alone = false;  // from now on, the previous prompt is not alone
  prefills_.push_back({request, now_s, context, std::max<int64_t>(tokens, 1), alone});
  Count(prefills_.back());
}

void EngineClock::Admitted(uint64_t request, int64_t context) {
  const auto it = std::ranges::find(prefills_, request, &Prefill::request);
  if (it == prefills_.end()) return;
  const int64_t end = it->context + it->tokens;
  tail_.reset();
  Uncount(*it);
  it->context = std::clamp<int64_t>(context, 0, end - 1);
  it->tokens = end - it->context;
  Count(*it);
}

// Takes the state `predicted` as the real state at `now_s`. If the engine sends reports, a
// prompt that is complete in this state keeps one token until its report arrives. If the engine
// sends no reports, such a prompt becomes a decoding request.
void EngineClock::Settle(const Position& predicted, double now_s) {
  anchor_s_ = now_s;
  for (size_t i = 0; i < std::min(predicted.next + 1, prefills_.size()); ++i) {
    Prefill& prefill = prefills_[i];
    const int64_t computed = i < predicted.next ? prefill.tokens - 1 : predicted.computed;
    Uncount(prefill);
    prefill.context += computed;
    prefill.tokens -= computed;
    Count(prefill);
  }
  if (reports_) return;
  for (size_t i = 0; i < predicted.next; ++i) {
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
  tail_.reset();
  const auto found = std::ranges::find(prefills_, request, &Prefill::request);
  if (found == prefills_.end()) return std::nullopt;
  const bool alone = found->alone;
  std::optional<Observation> observation;
  if (now_s > anchor_s_) {  // else the step that ended at anchor_s_ completed this prompt too
    Walk walk(*this, cost, Start());
    const auto position = static_cast<size_t>(found - prefills_.begin());
    for (int step = 0; step < kMaxSteps && walk.at().next <= position; ++step) walk.Step();
    if (alone) observation = Observe(walk, now_s, cost);
    Settle(walk.at(), now_s);
  }
  decodes_.push_back({request, found->context + found->tokens});
  decode_context_ += decodes_.back().context;
  Uncount(*found);
  prefills_.erase(found);
  return observation;
}

std::optional<EngineClock::Observation> EngineClock::Observe(const Walk& walk, double now_s,
                                                             const StepCost& cost) {
  const Position& at = walk.at();
  const double predicted_s = at.now_s - at.start_s;
  const double seconds = now_s - at.start_s;
  if (seconds <= 0 || predicted_s <= 0) return std::nullopt;
  const double phase_s = slowdown_ * cost.Of(walk.DecodeStep());
  if (at.guessed && predicted_s < kStepsOfPhase * phase_s) return std::nullopt;
  const Observation observation{at.work, seconds / slowdown_};
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
  tail_.reset();
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

StepWork EngineClock::DecodeStep() const { return DecodeStepOf(Decodes(), decode_context_); }

int64_t EngineClock::PromptTokensOfStep() const {
  const int64_t decodes = Decodes() + std::ssize(prefills_);
  return std::max<int64_t>(step_tokens_ - decodes, 1);
}

double EngineClock::StepsOf(int64_t tokens) const {
  const int64_t steps = (tokens + step_tokens_ - 1) / step_tokens_;
  return static_cast<double>(steps);
}

// The seconds from anchor_s_ until all prompts in the queue are computed, if the engine makes no
// pause.
double EngineClock::QueueSeconds(const StepCost& cost) const {
  return slowdown_ * (cost.Of(queued_work_) + StepsOf(queued_tokens_) * cost.Of(DecodeStep()));
}

// The seconds of a prompt that no other prompt delays.
double EngineClock::AloneSeconds(int64_t context, int64_t tokens, const StepCost& cost) const {
  return slowdown_ * (cost.Prefill(context, tokens) + StepsOf(tokens) * cost.Of(DecodeStep()));
}

EngineClock::Prediction EngineClock::Predict(double now_s, int64_t context, int64_t tokens,
                                             const StepCost& cost) const {
  constexpr uint64_t kNone = ~uint64_t{0};
  tokens = std::max<int64_t>(tokens, 1);
  const double compute_s = AloneSeconds(context, tokens, cost);
  double end_s = 0;
  const bool by_sums = prefills_.size() > kPromptsOfWalk ||
                       static_cast<double>(queued_tokens_ + tokens) >
                           kStepsOfWalk * static_cast<double>(PromptTokensOfStep());
  if (by_sums) {
    double begin_s = anchor_s_;
    if (reports_ && !prefills_.empty()) {  // the first prompt of a late engine ends late
      const Prefill& first = prefills_.front();
      begin_s =
          std::max(begin_s, now_s - late_s_ - AloneSeconds(first.context, first.tokens, cost));
    }
    end_s = std::max(begin_s + QueueSeconds(cost), now_s) + compute_s;
  } else {
    // The steps before the tail depend on `now_s` only if the engine is late.
    const double not_before_s = reports_ ? now_s - late_s_ : -1e300;
    const Tail* tail = prefills_.empty() ? nullptr : &TailFor(cost);
    const bool late = tail != nullptr && tail->first_end_s < not_before_s;
    const Prefill added{kNone, now_s, context, tokens};
    Walk walk(*this, cost, tail == nullptr || late ? Start() : tail->position, &added);
    walk.NotBefore(not_before_s);
    while (!walk.done()) walk.Step();
    end_s = walk.at().now_s;
  }
  Prediction prediction;
  prediction.first_token_s = std::max(end_s - now_s, 0.0);
  prediction.compute_s = std::min(compute_s, prediction.first_token_s);
  return prediction;
}

}  // namespace kvcast
