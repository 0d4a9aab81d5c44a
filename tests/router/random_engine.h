// An engine under random traffic, for routers to follow.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/prefill_split.h"
#include "tests/engine/engine_testing.h"

namespace kvcast::engine {

using Random = std::mt19937_64;

constexpr int64_t kUnit = 4;

inline int64_t Pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Prompts from few conversations, so that prefixes repeat; some with LoRA, salt or images.
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

// Requests come, are computed in steps and leave; blocks are evicted and the cache is reset.
class RandomEngine {
 public:
  // `images`: some prompts have multimodal items. `reports`: one request in so many has its hits
  // reported; 0: none.
  // `drafts`: tokens that a draft head adds to each decoding step; some are rejected.
  RandomEngine(Random& random, TestEngine engine, bool images, int64_t reports = 0,
               int64_t drafts = 0)
      : random_(random),
        images_(images),
        reports_(reports),
        drafts_(drafts),
        engine_(std::move(engine)),
        split_(engine_.config(), kMaxChunk) {}

  // The events of one step.
  EventBatch Step() {
    engine_.cache().BeginStep();
    for (auto it = running_.begin(); it != running_.end();) {
      if (Continue(*it)) {
        ++it;
        continue;
      }
      engine_.Free(it->request);
      it = running_.erase(it);
    }
    if (running_.size() < 5) Admit();
    engine_.cache().ReleaseCopies(engine_.cache().TakeCopies());
    if (Pick(random_, 0, 60) == 0) engine_.cache().ResetPrefixCache();
    if (Pick(random_, 0, 5) == 0) {
      engine_.Evict(static_cast<uint32_t>(Pick(random_, 1, engine_.config().num_blocks - 1)));
    }
    EventBatch batch;
    batch.events = engine_.cache().TakeEvents();
    for (Event& event : batch.events) {
      auto* stored = std::get_if<BlockStored>(&event);
      if (stored != nullptr && stored->lora_id) stored->lora_name = "adapter";
    }
    return batch;
  }
  // A prompt of its own, or one that was seen, shorter or longer.
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
  // Changes the request's chain alone.
  int64_t Lookup(CacheRequest& request) {
    const PrefixHit hit = engine_.Lookup(request);
    return hit.computed_tokens() > 0 ? hit.tokens : 0;
  }
  const CacheConfig& config() const { return engine_.config(); }
  // Hashes that are cached, in all groups.
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
    bool drafts = false;  // it has sampled: a step verifies drafts
  };

  static CacheRequest Named(CacheRequest request) {
    request.id = "probe";
    return request;
  }
  // Samples what the last step has computed, and computes the next. False: it has ended.
  bool Continue(Running& run) {
    Sample(run);
    const int64_t total = std::ssize(run.request.tokens);
    if (total > run.tokens_max) return false;
    const int64_t missing = total - run.computed;
    // A step that was put off for want of budget is tried again with more.
    const int64_t budget =
        std::max<int64_t>(Pick(random_, 1, kMaxChunk), run.scheduled == 0 ? kMaxChunk : 0);
    const int64_t wanted = std::min(missing + (run.drafts ? drafts_ : 0), budget);
    run.scheduled = split_.ChunkTokens(run.request, run.computed, wanted);
    if (run.scheduled == 0) return true;
    return engine_.Allocate(run.request, {.computed_tokens = run.computed,
                                          .new_tokens = run.scheduled,
                                          .lookahead_tokens = drafts_});
  }
  // One token, and the drafts that are accepted.
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
  void Admit() {
    Running run{RandomRequest(random_, images_)};
    run.request.id = std::to_string(next_id_++);
    run.request.report_hits = reports_ > 0 && Pick(random_, 1, reports_) == 1;
    const int64_t total = std::ssize(run.request.tokens);
    run.tokens_max = std::min<int64_t>(400, total + Pick(random_, 1, 40));
    const PrefixHit hit = engine_.Lookup(run.request);
    AllocateArgs args;
    run.computed = hit.computed_tokens();
    run.request.shared_prefix_boundary = hit.shared_prefix_boundary;
    const int64_t wanted = std::min(total - run.computed, Pick(random_, 1, kMaxChunk));
    run.scheduled = split_.ChunkTokens(run.request, run.computed, wanted);
    if (run.scheduled == 0) return;
    // What is computed again has its slots from the hit.
    const int64_t held = run.computed > 0 ? hit.tokens : 0;
    args.new_tokens = std::max<int64_t>(0, run.computed + run.scheduled - held);
    args.lookahead_tokens = drafts_;
    args.hit = &hit;
    args.full_sequence_must_fit = true;
    if (!engine_.Allocate(run.request, args)) return;
    seen_.push_back(run.request);
    running_.push_back(std::move(run));
  }

  Random& random_;
  const bool images_;
  const int64_t reports_;
  const int64_t drafts_;
  TestEngine engine_;
  const PrefillSplit split_;
  std::vector<Running> running_;
  std::vector<CacheRequest> seen_;
  int next_id_ = 0;
};

}  // namespace kvcast::engine
