// An engine with random traffic, for tests in which a router follows the engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/engine/prefill_split.h"
#include "tests/router/exactness/random_host_memory.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {

using Random = std::mt19937_64;

constexpr int64_t kHashBlockSize = 4;

inline int64_t Pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Draws prompts from few conversations, so that prefixes repeat. Some prompts have LoRA, a salt or
// images.
inline CacheRequest RandomRequest(Random& random, bool images) {
  const int64_t conversation = Pick(random, 0, 5);
  std::vector<TokenId> tokens(static_cast<size_t>(Pick(random, 1, 200)));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = i < 150 ? static_cast<TokenId>(i) % 7 + conversation / 3 : Pick(random, 0, 3);
  }
  CacheRequest request = Request("", std::move(tokens));
  if (conversation == 1) request.hash_inputs.cache_salt = "tenant";
  if (conversation == 2) {
    request.hash_inputs.lora_name = "adapter";
    request.hash_inputs.lora_path = "/of/the/adapter";
    request.lora_id = 7;
  }
  if (conversation != 4 || !images) return request;
  const std::string image = Pick(random, 0, 1) == 0 ? "cat" : "dog";
  for (int64_t offset = Pick(random, 0, 1) * 5; offset + 9 < std::ssize(request.tokens);) {
    const int64_t length = Pick(random, 0, 3) == 0 ? 2 : 9;
    request.hash_inputs.mm_items.push_back({image + std::to_string(length), offset, length});
    offset += length + (Pick(random, 0, 1) == 0 ? 1 : 20);
  }
  return request;
}

// The engine computes its requests in steps. Some steps also evict a block or reset the prefix
// cache.
class RandomEngine {
 public:
  // `images`: some prompts have multimodal items. `reports`: the engine reports the hit of one
  // request in `reports`; 0: of no request. `drafts`: tokens that a draft head adds to each decode
  // step; the engine rejects some of these tokens.
  RandomEngine(Random& random, TestEngine engine, bool images, int64_t reports = 0,
               int64_t drafts = 0)
      : random_(random),
        images_(images),
        reports_(reports),
        drafts_(drafts),
        engine_(std::move(engine)),
        split_(engine_.config(), kMaxChunk) {}

  CacheManager& cache() { return engine_.cache(); }
  // Sets the memory that the engine loads from. Must be called before the first step.
  void set_host(std::unique_ptr<HostMemory> host) { host_ = std::move(host); }

  // Runs a step and returns its events.
  EventBatch Step() {
    engine_.cache().BeginStep();
    if (host_ != nullptr) TakeLoads();
    for (auto it = running_.begin(); it != running_.end();) {
      const auto run = it++;
      if (run->load_end == 0 && !Continue(*run)) End(running_, run);
    }
    if (running_.size() < 5) Admit();
    engine_.cache().ReleaseCopies(engine_.cache().TakeCopies());
    if (host_ != nullptr) StepHost();
    if (Pick(random_, 0, 60) == 0) engine_.cache().ResetPrefixCache();
    if (Pick(random_, 0, 5) == 0) {
      engine_.Evict(static_cast<uint32_t>(Pick(random_, 1, engine_.config().num_blocks - 1)));
    }
    EventBatch batch;
    batch.events = engine_.cache().TakeEvents();
    if (host_ != nullptr) {
      for (Event& event : host_->TakeEvents()) batch.events.push_back(std::move(event));
    }
    for (Event& event : batch.events) {
      auto* stored = std::get_if<BlockStored>(&event);
      if (stored != nullptr && stored->lora_id) stored->lora_name = "adapter";
    }
    return batch;
  }
  // Returns a new prompt, or a shorter or longer form of an earlier prompt.
  CacheRequest ProbeRequest() {
    if (seen_.empty() || Pick(random_, 0, 3) == 0) return Named(RandomRequest(random_, images_));
    const CacheRequest& before =
        seen_[static_cast<size_t>(Pick(random_, 0, std::ssize(seen_) - 1))];
    CacheRequest request = Request("", before.tokens);
    request.hash_inputs = before.hash_inputs;
    request.lora_id = before.lora_id;
    request.tokens.resize(static_cast<size_t>(Pick(random_, 1, std::ssize(request.tokens) + 9)), 1);
    std::erase_if(request.hash_inputs.mm_items, [&](const MultimodalItem& item) {
      return item.offset + item.length > std::ssize(request.tokens);
    });
    request.prompt_tokens = std::ssize(request.tokens);
    return Named(std::move(request));
  }
  // Returns the length in tokens of the engine's own hit on the GPU. Changes only the request's
  // chain.
  int64_t Lookup(CacheRequest& request) {
    const PrefixHit hit = engine_.Lookup(request);
    return hit.computed_tokens() > 0 ? hit.tokens : 0;
  }
  // Returns the length in tokens of the prefix that the engine serves after loads. `local_tokens`:
  // the result of Lookup. Returns nullopt if the engine waits for copies without a time limit.
  std::optional<int64_t> LookupWithHost(const CacheRequest& request, int64_t local_tokens) {
    const auto tokens = host_->Probe(request, local_tokens);
    if (!tokens) return std::nullopt;
    const int64_t most = std::ssize(request.tokens) - 1;
    return std::max(local_tokens, std::min(local_tokens + *tokens, most));
  }
  const CacheConfig& config() const { return engine_.config(); }
  // Returns the number of cached hashes in all groups.
  uint64_t cached() {
    uint64_t cached = 0;
    for (uint32_t group = 0; group < config().groups.size(); ++group) {
      cached += engine_.cache().CachedKeys(GroupIdx(group)).size();
    }
    return cached;
  }

 private:
  static constexpr int64_t kMaxChunk = 64;

  struct Running {
    CacheRequest request;
    int64_t computed = 0;
    int64_t tokens_max = 0;
    int64_t scheduled = 0;
    bool drafts = false;   // the request has sampled, so the next step verifies drafts
    int64_t load_end = 0;  // end of the prefix after the load in flight, in tokens; 0: no load
  };

  static CacheRequest Named(CacheRequest request) {
    request.id = "probe";
    return request;
  }
  // Samples the token of the previous step and allocates the next step. Returns false if the
  // request must end: the request has all its tokens, or there are no free blocks.
  bool Continue(Running& run) {
    Sample(run);
    const int64_t total = std::ssize(run.request.tokens);
    if (total > run.tokens_max) return false;
    const int64_t missing = total - run.computed;
    // A step that had too little budget is tried again with more budget.
    const int64_t budget =
        std::max<int64_t>(Pick(random_, 1, kMaxChunk), run.scheduled == 0 ? kMaxChunk : 0);
    const int64_t wanted = std::min(missing + (run.drafts ? drafts_ : 0), budget);
    run.scheduled = split_.ChunkTokens(run.request, run.computed, wanted);
    if (run.scheduled == 0) return true;
    return engine_.Allocate(run.request, {.computed_tokens = run.computed,
                                          .new_tokens = run.scheduled,
                                          .lookahead_tokens = drafts_});
  }
  // Ends the previous step. If the step computed all tokens, appends one token and the accepted
  // drafts.
  void Sample(Running& run) {
    if (run.scheduled == 0) return;
    const int64_t known = std::ssize(run.request.tokens);
    run.computed += run.scheduled;
    if (run.computed < known) return;
    const int64_t accepted = Pick(random_, 0, run.computed - known);
    for (int64_t i = 0; i <= accepted; ++i) run.request.tokens.push_back(Pick(random_, 0, 3));
    run.computed = known + accepted;
    run.drafts = drafts_ > 0;
    if (run.drafts && engine_.config().rules >= EngineRules::kV033) {
      engine_.cache().CacheBlocks(run.request, run.computed);
    }
  }
  void End(std::list<Running>& from, std::list<Running>::iterator run) {
    if (host_ != nullptr) host_->End(run->request, run->computed);
    engine_.Free(run->request);
    ended_.splice(ended_.end(), from, run);
    if (host_ == nullptr) ended_.clear();
  }
  void TakeLoads() {
    if (Pick(random_, 0, 60) == 0) host_->Reset();
    for (const HostMemory::Arrival& arrival : host_->TakeArrivals()) {
      const auto run = std::ranges::find_if(
          running_, [&](const Running& of) { return of.request.id == arrival.request; });
      ASSERT_NE(run, running_.end());
      if (!arrival.success) {
        End(running_, run);
        continue;
      }
      engine_.cache().CacheBlocks(run->request, run->load_end);
      run->computed = std::min(run->load_end, std::ssize(run->request.tokens) - 1);
      run->load_end = 0;
    }
  }
  void StepHost() {
    std::vector<HostMemory::Scheduled> scheduled;
    for (const Running& run : running_) {
      if (run.load_end > 0 || run.scheduled == 0) continue;
      scheduled.push_back({&run.request, run.computed, run.scheduled});
    }
    host_->Step(scheduled);
    ended_.clear();
  }
  // Returns how many of the `matched` tokens this engine loads.
  int64_t Loaded(const PrefixHit& hit, int64_t matched) const {
    // The behaviour of bounded replay after a load is not known.
    if (config().replay_tokens > 0) return 0;
    if (!PartialHitsEnabled(config())) return matched;
    // The engine starts and ends no load inside a block.
    const int64_t grid = config().scheduler_block_size;
    return hit.tokens % grid == 0 ? matched / grid * grid : 0;
  }
  // Returns false if the request does not run.
  bool StartLoad(Running& run, const PrefixHit& hit, int64_t tokens) {
    AllocateArgs args;
    args.external_tokens = tokens;
    args.hit = &hit;
    args.delay_caching = true;
    args.full_sequence_must_fit = true;
    if (!engine_.Allocate(run.request, args) || !host_->Load(run.request, tokens)) return false;
    run.load_end = hit.tokens + tokens;
    return true;
  }
  void Admit() {
    std::list<Running> fresh;
    Running& run = fresh.emplace_back(Running{.request = RandomRequest(random_, images_)});
    if (Admit(run)) {
      running_.splice(running_.end(), fresh);
    } else if (host_ != nullptr) {
      End(fresh, fresh.begin());
    }
  }
  bool Admit(Running& run) {
    run.request.id = std::to_string(next_id_++);
    run.request.report_hits = reports_ > 0 && Pick(random_, 1, reports_) == 1;
    const int64_t total = std::ssize(run.request.tokens);
    run.tokens_max = std::min<int64_t>(400, total + Pick(random_, 1, 40));
    const PrefixHit hit = engine_.Lookup(run.request);
    AllocateArgs args;
    if (host_ != nullptr) host_->Add(run.request);
    run.computed = hit.computed_tokens();
    run.request.shared_prefix_boundary = hit.shared_prefix_boundary;
    if (host_ != nullptr) {
      const auto matched = host_->Match(run.request, hit.tokens);
      if (!matched) return false;
      const int64_t loaded = Loaded(hit, *matched);
      if (loaded > 0 && !StartLoad(run, hit, loaded)) return false;
      if (loaded > 0) seen_.push_back(run.request);
      if (loaded > 0) return true;
    }
    const int64_t wanted = std::min(total - run.computed, Pick(random_, 1, kMaxChunk));
    run.scheduled = split_.ChunkTokens(run.request, run.computed, wanted);
    if (run.scheduled == 0) return false;
    // The hit already has the slots of the tokens that are computed again.
    const int64_t held = run.computed > 0 ? hit.tokens : 0;
    args.new_tokens = std::max<int64_t>(0, run.computed + run.scheduled - held);
    args.lookahead_tokens = drafts_;
    args.hit = &hit;
    args.full_sequence_must_fit = true;
    if (!engine_.Allocate(run.request, args)) return false;
    if (host_ != nullptr) {
      EXPECT_TRUE(host_->Load(run.request, 0));
    }
    seen_.push_back(run.request);
    return true;
  }

  Random& random_;
  const bool images_;
  const int64_t reports_;
  const int64_t drafts_;
  TestEngine engine_;
  const PrefillSplit split_;
  std::unique_ptr<HostMemory> host_;
  std::list<Running> running_;
  std::list<Running> ended_;  // ended in this step; the host's scheduler still reads them
  std::vector<CacheRequest> seen_;
  int next_id_ = 0;
};

}  // namespace kvcast::engine
