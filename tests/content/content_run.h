// ContentRun: an engine with a real CacheManager and a tier of host memory (tier.h). The engine
// serves random requests. The run checks all bytes that the engine uses.
//
// The engine may schedule a step while earlier steps still run. Copies end in any order and at any
// time, or fail. A newly allocated block is filled with garbage before a load or a step writes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/content/computation.h"
#include "tests/content/prefix_registry.h"
#include "tests/content/run_config.h"
#include "tests/content/tier.h"

namespace kvcast::content {

class ContentRun {
 public:
  explicit ContentRun(RunConfig config);
  ~ContentRun();

  // Runs until `config.operations` operations are done, then until no request is left. Expects that
  // all invariants hold. The caller must judge the findings about wrong bytes.
  void Run();
  const Findings& findings() const { return findings_; }
  const RunCounts& counts() const { return counts_; }

 private:
  static constexpr int64_t kBudget = 48;  // tokens per step

  void Step(bool add);
  void AddRequest();
  void Grow(Request& request, int64_t tokens);

  void Disturb();
  void ResetGpu();
  void EvictSome();
  void Preempt(Request& request);
  void Finish(Request& request, bool aborted);

  void ScheduleRunning();
  void AdmitWaiting();
  bool Admit(Request& request);
  void PreemptLoaded(const Request& first);
  // See Tier::Match.
  std::optional<int64_t> Lookup(Request& request, const PrefixHit& hit);
  void TakeEvents();
  // `promised`: `external` is the whole match of the tier, which the test did not shorten. The tier
  // must not refuse a promised load.
  bool StartLoad(Request& request, const PrefixHit& hit, int64_t external, bool promised);
  bool ScheduleTokens(Request& request, const PrefixHit* hit);
  int64_t TokensOfStep(const Request& request) const;
  void NoteBlocks(Request& request);

  void SubmitStep();
  void SampleOrFinish();
  void LetTimePass();
  void TakeArrivals();
  void Arrive(Request& request, const Arrival& arrival);
  void KeepBlocks(Request& request, OffloadJobId job);
  void CheckHost();
  void CheckChunk(const HostChunk& chunk);
  void CheckDrained();
  std::string TextOf(const Request& request) const;

  int64_t Random(int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(random_);
  }
  bool Chance(double rate) { return std::bernoulli_distribution(rate)(random_); }

  const RunConfig config_;
  std::mt19937_64 random_;
  RunCounts counts_;
  Findings findings_;
  GpuStream stream_;
  std::unique_ptr<CacheManager> cache_;
  BlockHasher hasher_;
  KvMemory memory_;
  Computation computation_;
  std::unique_ptr<Tier> tier_;
  PrefixRegistry registry_;
  int64_t grid_ = 1;      // steps end at multiples of this number of tokens, for Mamba states
  bool all_full_ = true;  // all groups use full attention
  std::deque<std::unique_ptr<Request>> requests_;  // in order of arrival
  // By job of a late load: the request whose blocks stay allocated until the copy ends.
  std::map<OffloadJobId, CacheRequest> kept_;
  std::vector<std::vector<TokenId>> past_;  // prompts with answers that new prompts extend
  std::vector<Scheduled> scheduled_;
  std::vector<BlockId> to_poison_;
  int64_t budget_ = 0;
  int64_t now_ms_ = 0;
  uint64_t next_id_ = 1;
  TokenId next_token_ = 1;
};

}  // namespace kvcast::content
