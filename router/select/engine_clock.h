// EngineClock: predicts the steps of one engine, and from the steps the time of a request's first
// token.
//
// The clock follows the requests that the router has sent to the engine. It assumes vLLM's
// scheduler: a step computes one token of each decoding request, and fills its budget with the
// oldest prompts. A report of a first token corrects the clock, because a step ended at this time.
// If an engine that sends reports is late, the clock moves the end of its current prompt to a later
// time.
//
// Other routers may send requests to the engine too. The clock knows only the sums of these
// requests, and represents the requests by prompts of equal size with the same sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>

#include "router/select/in_flight.h"
#include "router/select/step_cost.h"

namespace kvcast {

// Thread-compatible. All times are seconds of one clock that does not go back.
class EngineClock {
 public:
  // `step_tokens`: maximum number of tokens that the engine computes in a step
  // (max_num_batched_tokens). `late_s`: an engine that sends reports is late if a report of a first
  // token is missing `late_s` seconds after the predicted time.
  explicit EngineClock(int64_t step_tokens, double late_s = 0.05)
      : step_tokens_(step_tokens), late_s_(late_s) {}

  // Must be called when a prompt was sent to the engine. The engine computes `tokens` tokens of the
  // prompt after `context` tokens.
  void Sent(uint64_t request, double now_s, int64_t context, int64_t tokens, const StepCost& cost);
  // Must be called when the engine has reported its context for the prompt. `context` replaces the
  // expected context.
  void Admitted(uint64_t request, int64_t context);

  // The work that the engine did between two known times.
  struct Observation {
    StepWork work;
    double seconds = 0;  // between the two times, divided by slowdown()
  };
  // Must be called when the engine has reported the first token. nullopt: the work between the two
  // times is not known, for example because the engine also had other prompts.
  std::optional<Observation> FirstToken(uint64_t request, double now_s, const StepCost& cost);
  // Must be called when the request has ended, or when its booking has expired.
  void Ended(uint64_t request);

  // The requests that Sent was called for and that have not ended. If the engine sends no reports,
  // a prompt counts as a request in decode from its predicted completion on.
  InFlight Own(double now_s, const StepCost& cost);
  // Must be called when the load of the other routers is known. If `load` has more prompts than
  // before, the additional prompts are new. If `load` has fewer prompts than before, the engine has
  // completed the oldest prompts.
  void SetOthers(const InFlight& load, double now_s, const StepCost& cost);

  // The prediction for a prompt that is sent now. A prompt that is sent later may share the last
  // step, and make it longer; the prediction does not include this delay.
  struct Prediction {
    double first_token_s = 0;  // seconds from now to the end of the step that completes the prompt
    double compute_s = 0;      // the part that the steps of this prompt alone take
  };
  Prediction Predict(double now_s, int64_t context, int64_t tokens, const StepCost& cost) const;

  // Factor of all predicted times, learned from the observations of this engine.
  double slowdown() const { return slowdown_; }
  void ScaleSlowdown(double factor) {
    slowdown_ *= factor;
    tail_.reset();
  }
  size_t prefills() const { return prefills_.size(); }
  size_t decodes() const { return static_cast<size_t>(Decodes()); }

 private:
  struct Prefill {
    uint64_t request = 0;
    double sent_s = 0;
    int64_t context = 0;  // computed tokens, at anchor_s_
    int64_t tokens = 0;   // tokens to compute, at anchor_s_
    bool alone = true;    // the engine has had no other prompt since this prompt was sent
  };
  struct Decode {
    uint64_t request = 0;
    int64_t context = 0;
  };
  // A predicted state of the engine, at the end of a step.
  struct Position {
    double now_s = 0;
    double start_s = 0;    // end of the latest pause without prompts; without a pause: anchor_s_
    size_t next = 0;       // number of complete prompts
    int64_t computed = 0;  // tokens of the first prompt that is not complete
    int64_t decodes = 0;
    int64_t decode_context = 0;
    bool guessed = false;  // the engine was decoding at start_s, so the end of its step is a guess
    StepWork work;         // since start_s
  };
  class Walk;
  // The position before the step that completes the last prompt of the queue. A prompt that is sent
  // now changes no earlier step.
  struct Tail {
    Position position;
    StepCost cost;
    double first_end_s = 0;  // end of the first step that completes a prompt
  };
  int64_t Decodes() const { return std::ssize(decodes_) + others_.decodes; }
  Position Start() const;
  // REQUIRES: prefills_ is not empty.
  const Tail& TailFor(const StepCost& cost) const;

  // A change of an element of prefills_ must be between Uncount and Count of this element.
  void Count(const Prefill& prefill);
  void Uncount(const Prefill& prefill);
  StepWork DecodeStep() const;  // the work of a step without prompts
  // The least number of prompt tokens in a step while prompts are in the queue.
  int64_t PromptTokensOfStep() const;
  double StepsOf(int64_t tokens) const;
  double QueueSeconds(const StepCost& cost) const;
  double AloneSeconds(int64_t context, int64_t tokens, const StepCost& cost) const;
  void Settle(const Position& predicted, double now_s);
  std::optional<Observation> Observe(const Walk& walk, double now_s, const StepCost& cost);
  int64_t OtherPrompts() const;  // number of prompts of other routers in prefills_
  void RemoveOtherDecodes();
  void CompleteOthers(int64_t left, double now_s, const StepCost& cost);
  void ShareOutOthers();
  // If the engine sends no reports, takes the predicted state as the real state from time to time.
  // This bounds the steps of a walk.
  void Trust(double now_s, const StepCost& cost);

  // `error`: the logarithm of the real time divided by the predicted time.
  void NoteError(double error);

  const int64_t step_tokens_;
  const double late_s_;
  double anchor_s_ = 0;           // a step ended at this time
  std::deque<Prefill> prefills_;  // in order of sent_s
  // The sums over prefills_. They are exact as long as the amounts, multiples of 1/2, are below
  // 2^52. If another router reports more, they are exact again when no prompt waits.
  StepWork queued_work_;
  int64_t queued_tokens_ = 0;
  std::deque<Decode> decodes_;
  int64_t decode_context_ = 0;        // of decodes_ and others_
  InFlight others_;                   // load of other routers; its prompts are in prefills_
  mutable std::optional<Tail> tail_;  // for predictions; every change of the clock resets it
  bool reports_ = false;              // the engine has reported a first token
  double slowdown_ = 1;
  double mean_error_ = 0;
  int errors_ = 0;  // number of errors since the slowdown changed
};

}  // namespace kvcast
