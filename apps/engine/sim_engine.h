// SimEngine: a scheduler over a real CacheManager. A clock replaces the model.
//
// A step schedules like vLLM. It takes the running requests first (each decodes, or computes the
// next chunk of its prefill), then the waiting requests. If a running request gets no block, the
// engine preempts the request at the end of the running list. PrefillSplit decides where chunks
// end. Drafts are verified: some are rejected, and their tokens are computed again. Blocks, hits
// and events are real. Only the model's time and the accepted drafts are simulated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/engine/host_tier.h"
#include "apps/engine/step_time.h"
#include "kvcast/core/ids.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/engine/prefill_split.h"

namespace kvcast::tools {

struct SimEngineConfig {
  int64_t max_batched_tokens = 8192;  // tokens scheduled in one step
  int64_t max_running = 256;          // requests running or loading at a time
  int64_t draft_tokens = 0;           // verified in each decoding step of a request
  // Probability that a draft is accepted, if all drafts before it were accepted.
  double draft_acceptance = 0.7;
  StepTime step;
  double load_tokens_per_s = 300000;  // from host memory; loads run one after the other
};

struct SimRequest {
  int64_t number = 0;  // chosen by the caller; also seeds the sampled tokens
  std::vector<TokenId> prompt;
  int64_t output_tokens = 1;
  // The sampled tokens. Empty: OutputToken gives them. REQUIRES: empty, or at least output_tokens
  // tokens.
  std::vector<TokenId> answer;
  int64_t keep_prefix_tokens = 0;                // see CacheRequest
  std::optional<int64_t> will_not_return_after;  // see CacheRequest
  // The hash chain of the prompt, if the caller has it. Empty: the engine computes it.
  std::vector<Digest> chain;
};

// The state at the admission of a request.
struct Admission {
  int64_t number = 0;
  int64_t hit_tokens = 0;     // from the engine's own lookup
  int64_t loaded_tokens = 0;  // tokens after the hit, from host memory
  int64_t prompt_tokens = 0;
  int64_t sampled_tokens = 0;  // > 0: the request was preempted before
  bool first = true;           // false: the request returns after a preemption or a failed load
  // Number of batches published before the lookup. These batches contain all earlier events.
  Seq published;
};

struct SimTotals {
  int64_t admitted = 0;  // number of first admissions
  int64_t finished = 0;
  int64_t refused = 0;  // requests that can never fit
  int64_t preempted = 0;
  int64_t prompt_tokens = 0;     // of first admissions
  int64_t reused_tokens = 0;     // prompt tokens that were reused on the GPU
  int64_t loaded_tokens = 0;     // prompt tokens that were loaded from host memory without an error
  int64_t failed_loads = 0;      // loads that failed; the request then computes the tokens
  int64_t recomputed_again = 0;  // tokens that were computed again after a preemption
  int64_t computed_tokens = 0;   // by all steps, including rejected drafts
  int64_t drafted = 0;           // draft tokens that were verified
  int64_t drafts_accepted = 0;
  int64_t steps = 0;
};

struct SimHooks {
  // Publishes the events that occurred together. Returns the number of batches published so far.
  std::function<Seq(std::vector<Event>)> publish;
  std::function<void(const Admission&)> admitted;
  std::function<void(int64_t number)> first_token;  // called when the prompt is computed
  std::function<void(int64_t number)> finished;
  std::function<void(int64_t number)> refused;
};

class SimEngine {
 public:
  // `tier` is a tier of `cache`. nullptr: no host tier.
  SimEngine(const SimEngineConfig& config, std::unique_ptr<CacheManager> cache, int64_t vocabulary,
            SimHooks hooks, std::unique_ptr<HostTier> tier = nullptr);
  ~SimEngine();

  void Add(SimRequest request);
  // True: no request is waiting, loading or running, and no copy is in progress.
  bool idle() const;
  // Runs one scheduling pass and one model step. Returns the seconds that the step takes; 0 if no
  // request was scheduled and no copy is in progress.
  double Step();
  // Drops all cached blocks. Publishes the pending events. False: no block was dropped, because
  // blocks are in use.
  bool ResetPrefixCache();
  // Publishes the events of the previous step. Only an idle engine needs this call, because the
  // next Step publishes these events too.
  void PublishPending();

  // Number of requests that wait for admission.
  int64_t waiting() const { return std::ssize(waiting_); }
  const SimTotals& totals() const { return totals_; }
  const CacheManager& cache() const { return *cache_; }
  const HostTier* tier() const { return tier_.get(); }

 private:
  struct Running;
  using RunningPtr = std::unique_ptr<Running>;

  void ScheduleRunning(int64_t& budget);
  void ScheduleWaiting(int64_t& budget);
  bool AllocateOrPreempt(size_t index, int64_t tokens);
  void PreemptLast();
  // The result of an admission.
  enum class Admitted : uint8_t {
    // No room in the pool, or a budget that reaches no position where the first chunk may end. No
    // other request is admitted in this step.
    kNot,
    kPending,  // the number of tokens that the host tier can load is not known yet
    kRunning,
    kLoading,
  };
  Admitted Admit(Running& request, int64_t& budget);
  void Report(Running& request, int64_t hit_tokens, int64_t loaded_tokens);
  void CompleteCopies();
  void ScheduleCopies();
  double StepSeconds() const;
  int64_t AcceptedDrafts(const Running& entry) const;
  bool Sample(Running& entry);
  void FinishStep();

  const SimEngineConfig config_;
  const std::unique_ptr<CacheManager> cache_;
  const PrefillSplit split_;
  const std::unique_ptr<HostTier> tier_;
  const int64_t vocabulary_;
  const SimHooks hooks_;
  std::deque<RunningPtr> waiting_;
  std::vector<RunningPtr> loading_;  // admitted requests whose loads are in progress
  std::vector<RunningPtr> running_;
  std::vector<RunningPtr> ended_;  // ended requests; kept until the tier has built the next step
  std::vector<TierRequest> step_requests_;  // scratch
  double clock_s_ = 0;                      // model time
  double loads_end_s_ = 0;                  // model time at which the last load ends
  bool preempted_in_step_ = false;
  Seq published_;
  SimTotals totals_;
};

}  // namespace kvcast::tools
