// An engine with a SimpleOffload, and its workers. The test checks the content of every block: the
// content is the name of the prefix that ends with the block. A copy reads and writes when it is
// completed, which is the latest possible time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/offload/simple_offload.h"
#include "tests/support/engine_testing.h"

namespace kvcast::offload {

using engine::Chunked;
using engine::Config;
using engine::Full;
using engine::Ids;
using engine::Mamba;
using engine::Request;
using engine::ToIds;
using engine::Tokens;
using engine::Window;

inline SimpleOffloadConfig Eager(int64_t cpu_blocks) {
  SimpleOffloadConfig config;
  config.num_cpu_blocks = cpu_blocks;
  return config;
}
inline SimpleOffloadConfig Lazy(int64_t cpu_blocks, int64_t target_free = 0) {
  SimpleOffloadConfig config = Eager(cpu_blocks);
  config.mode = StoreMode::kLazy;
  config.lazy_target_free = target_free;
  return config;
}
inline SimpleOffloadConfig LikeVllm(SimpleOffloadConfig config) {
  config.compatible = true;
  return config;
}

// Texts: "+g0 2 blocks at 0" for a store, "-g0" for every removal event, "cleared CPU" for a clear.
// The text of a store or a removal ends with the medium if the medium is not CPU.
inline std::vector<std::string> Texts(const std::vector<Event>& events) {
  std::vector<std::string> texts;
  for (const Event& event : events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      texts.push_back("+g" + std::to_string(*stored->group_idx) + " " +
                      std::to_string(stored->block_hashes.size()) + " blocks at " +
                      std::to_string(stored->token_offset.value_or(-1)));
      if (stored->medium != kMediumCpu) texts.back() += " " + stored->medium.value_or("?");
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      texts.push_back("-g" + std::to_string(*removed->group_idx));
      if (removed->medium != kMediumCpu) texts.back() += " " + removed->medium.value_or("?");
    } else {
      texts.push_back("cleared " + std::get<AllBlocksCleared>(event).medium.value_or("?"));
    }
  }
  return texts;
}

class TestTier {
 public:
  TestTier(const CacheConfig& gpu, SimpleOffloadConfig config) {
    auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256Cbor, kDefaultHashSeed);
    auto cache = CacheManager::Create(gpu, std::move(hasher).value(), {.enabled = false});
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    cache_ = std::move(cache).value();
    config.cache = gpu;
    auto offload = SimpleOffload::Create(config, cache_->gpu_blocks());
    EXPECT_TRUE(offload.ok()) << offload.status().ToString();
    offload_ = std::move(offload).value();
  }
  ~TestTier() {
    running_.clear();  // the test has destroyed its requests
    Check();
  }

  CacheManager& gpu() { return *cache_; }
  SimpleOffload& offload() { return *offload_; }
  const TransferStep& step() const { return step_; }
  int64_t host_free() const { return offload_->usage().free_blocks; }
  int64_t gpu_free() const { return cache_->usage().free_blocks; }

  // Looks the request up on the GPU and on the host, and allocates its blocks. At most `accept`
  // tokens are loaded. If no token is loaded, at most `compute` tokens are allocated to compute.
  // Returns the number of tokens to load; -1: no room.
  int64_t Start(CacheRequest& request, int64_t accept = INT64_MAX, int64_t compute = INT64_MAX) {
    const PrefixHit hit = cache_->GetComputedBlocks(request);
    const int64_t matched = offload_->Match(request, hit.tokens);
    return Allocate(request, hit, std::min(matched, accept), compute);
  }

  int64_t Allocate(CacheRequest& request, const PrefixHit& hit, int64_t external,
                   int64_t compute = INT64_MAX) {
    AllocateArgs args;
    args.hit = &hit;
    args.external_tokens = external;
    args.delay_caching = external > 0;
    const auto length = static_cast<int64_t>(request.tokens.size());
    if (external == 0) args.new_tokens = std::min(length - hit.tokens, compute);
    if (!cache_->AllocateSlots(request, args)) return -1;
    Forget(request, hit.tokens);
    load_status_ = offload_->UpdateAfterAlloc(request, external);
    Running run{&request, hit.tokens, hit.tokens + args.new_tokens};
    if (external > 0 && load_status_.ok()) run.loading = external;
    running_.push_back(run);
    return external;
  }
  const Status& load_status() const { return load_status_; }

  // Allocates blocks for `tokens` more tokens. False: no room.
  bool Extend(CacheRequest& request, int64_t tokens) {
    Running& run = Find(request);
    if (!cache_->AllocateSlots(request, {.computed_tokens = run.computed, .new_tokens = tokens})) {
      return false;
    }
    Forget(request, run.computed);
    run.scheduled = run.computed + tokens;
    return true;
  }
  bool Decode(CacheRequest& request, TokenId token) {
    request.tokens.push_back(token);
    return Extend(request, 1);
  }

  // Ends the scheduling of the step and computes the step.
  const TransferStep& Step() {
    std::vector<StepRequest> scheduled;
    for (Running& run : running_) {
      if (run.waiting) AllocateRemaining(run);
      if (run.computes()) scheduled.push_back({run.request, run.computed});
    }
    offload_->BuildStep(scheduled, step_);
    if (step_.store_event) stores_[*step_.store_event] = step_.store;
    for (size_t i = 0; i < step_.load.gpu.size(); ++i) {
      loads_.gpu.push_back(step_.load.gpu[i]);
      loads_.cpu.push_back(step_.load.cpu[i]);
    }
    for (Running& run : running_) {
      if (run.computes()) Compute(run);
    }
    Check();
    return step_;
  }

  void CompleteStores(bool success = true) {
    for (const auto& [event, pairs] : std::exchange(stores_, {})) {
      for (size_t i = 0; i < pairs.gpu.size(); ++i) {
        host_[pairs.cpu[i]] = success ? gpu_[pairs.gpu[i]] : "garbage";
      }
      // Some workers may have reported before.
      while (IsStoring(event)) EXPECT_TRUE(offload_->CompleteStore(event, 1, success).ok());
    }
    Check();
  }
  // Completes all loads. The next step computes the remaining tokens of their requests.
  void CompleteLoads(bool success = true) {
    for (size_t i = 0; i < loads_.gpu.size(); ++i) {
      gpu_[loads_.gpu[i]] = success ? host_[loads_.cpu[i]] : "garbage";
    }
    loads_ = {};
    for (const std::string& id : std::exchange(finished_loading_, {})) {
      EXPECT_TRUE(offload_->CompleteLoad(id, success).ok());
    }
    for (Running& run : running_) {
      if (run.loading == 0) continue;
      EXPECT_TRUE(offload_->CompleteLoad(run.request->id, success).ok());
      if (success) run.computed += run.loading;
      run.loading = 0;
      if (success) cache_->CacheBlocks(*run.request, run.computed);
      run.waiting = true;
    }
    Check();
  }

  // Ends the request with its computed tokens.
  void Finish(CacheRequest& request) {
    const Running run = Find(request);
    if (run.loading > 0) finished_loading_.push_back(request.id);
    offload_->RequestFinished(request, run.computed);
    Drop(request);
  }
  void Preempt(CacheRequest& request) {
    offload_->Preempt(request, Find(request).computed);
    Drop(request);
  }

  // Runs a request from its lookup to its end, with all blocks stored.
  void Serve(CacheRequest request) {
    ASSERT_GE(Start(request), 0);
    Step();
    CompleteLoads();
    Step();
    Finish(request);
    Step();
    CompleteStores();
  }
  // Resets the prefix cache of the GPU. REQUIRES: no GPU block is in use.
  void ForgetGpu() { EXPECT_TRUE(cache_->ResetPrefixCache()); }

  // Returns the tokens that the host could add to the hit on the GPU. Keeps no reference.
  int64_t Hit(std::vector<TokenId> tokens) {
    CacheRequest probe = Request("probe", std::move(tokens));
    const PrefixHit hit = cache_->GetComputedBlocks(probe);
    const int64_t host_tokens = offload_->Match(probe, hit.tokens);
    offload_->RequestFinished(probe, 0);
    return host_tokens;
  }
  int64_t HostKeys() const { return std::ssize(offload_->Inspect().cached); }
  std::vector<std::string> Events() { return Texts(offload_->TakeEvents()); }

  // Checks the invariants of the GPU and of the host, and the content of the computed blocks of
  // running requests and of the cached host blocks.
  void Check() {
    const Status gpu = cache_->CheckInvariants();
    EXPECT_TRUE(gpu.ok()) << gpu.ToString();
    const Status host = offload_->CheckInvariants();
    EXPECT_TRUE(host.ok()) << host.ToString();
    for (const Running& run : running_) {
      ForEachBlock(*run.request, 0, run.computed, [&](BlockId block, const std::string& name) {
        EXPECT_EQ(gpu_[block], name) << run.request->id << " block " << block.value;
      });
    }
    for (const auto& [block, content] : offload_->Inspect().cached) {
      EXPECT_EQ(host_[block], Name(content.digest, content.group)) << "host " << block.value;
    }
  }
  int64_t computed(const CacheRequest& request) { return Find(request).computed; }
  bool waiting(const CacheRequest& request) { return Find(request).waiting; }
  int64_t loading(const CacheRequest& request) { return Find(request).loading; }

 private:
  struct Running {
    CacheRequest* request;
    int64_t computed;   // tokens with KV
    int64_t scheduled;  // tokens with KV after this step
    int64_t loading = 0;
    bool waiting = false;  // the load has ended; the request needs blocks for its remaining tokens

    bool computes() const { return loading == 0 && !waiting; }
  };

  bool IsStoring(int64_t event) const {
    const SimpleOffload::State state = offload_->Inspect();
    return std::ranges::count(state.stores, event) +
               std::ranges::count(state.abandoned_stores, event) >
           0;
  }
  static std::string Name(const Digest& digest, GroupIdx group) {
    return std::to_string(digest.low64()) + "/" + std::to_string(group.value);
  }
  // Visits the whole blocks of the tokens [begin, end) that the request holds.
  template <typename Visit>
  void ForEachBlock(const CacheRequest& request, int64_t begin, int64_t end, const Visit& visit) {
    const CacheConfig& config = cache_->config();
    for (uint32_t i = 0; i < config.groups.size(); ++i) {
      const int64_t size = config.groups[i].block_size;
      const auto table = cache_->BlockTable(request, GroupIdx(i));
      for (int64_t j = begin / size; j < end / size && j < std::ssize(table); ++j) {
        const BlockId block = table[static_cast<size_t>(j)];
        if (block == engine::kNullBlock) continue;
        const Digest& digest = BlockDigest(request.chain, j, size / config.hash_block_size);
        visit(block, Name(digest, GroupIdx(i)));
      }
    }
  }
  // Marks the content of the blocks from token `begin` on as not computed yet.
  void Forget(const CacheRequest& request, int64_t begin) {
    for (uint32_t i = 0; i < cache_->config().groups.size(); ++i) {
      const auto table = cache_->BlockTable(request, GroupIdx(i));
      const auto first = begin / cache_->config().groups[i].block_size;
      for (auto j = static_cast<size_t>(first); j < table.size(); ++j) gpu_[table[j]] = "new";
    }
  }
  void AllocateRemaining(Running& run) {
    const auto length = static_cast<int64_t>(run.request->tokens.size());
    const AllocateArgs args{.computed_tokens = run.computed, .new_tokens = length - run.computed};
    if (!cache_->AllocateSlots(*run.request, args)) return;
    Forget(*run.request, run.computed);
    EXPECT_TRUE(offload_->UpdateAfterAlloc(*run.request, 0).ok());
    run.scheduled = length;
    run.waiting = false;
  }
  void Compute(Running& run) {
    ForEachBlock(*run.request, run.computed, run.scheduled,
                 [this](BlockId block, const std::string& name) { gpu_[block] = name; });
    run.computed = std::max(run.computed, run.scheduled);
  }
  Running& Find(const CacheRequest& request) {
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const Running& run) { return run.request == &request; });
    EXPECT_NE(found, running_.end());
    return *found;
  }
  void Drop(CacheRequest& request) {
    std::erase_if(running_, [&](const Running& run) { return run.request == &request; });
    cache_->Free(request);
  }

  std::unique_ptr<CacheManager> cache_;
  std::unique_ptr<SimpleOffload> offload_;
  TransferStep step_;
  Status load_status_;
  std::vector<Running> running_;
  std::map<int64_t, BlockPairs> stores_;
  BlockPairs loads_;
  std::vector<std::string> finished_loading_;
  std::map<BlockId, std::string> gpu_;  // content of each block
  std::map<BlockId, std::string> host_;
};

}  // namespace kvcast::offload
