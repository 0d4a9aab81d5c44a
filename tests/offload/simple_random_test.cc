// Random traffic with preemptions, aborts, evictions, resets and failures. A request reads only
// blocks with the right content. No reference is left at the end. No lookup finds a block before
// its copy has ended. KVCAST_SEEDS sets the number of seeds.
// SPDX-License-Identifier: Apache-2.0
#include <list>
#include <random>

#include "tests/offload/simple_testing.h"
#include "tests/support/setting.h"

namespace kvcast::offload {
namespace {

struct Case {
  std::string name;
  std::vector<GroupSpec> groups;
  StoreMode mode;
};

class Traffic {
 public:
  Traffic(const Case& traffic, uint64_t seed)
      : random_(seed), tier_(Config(traffic.groups, 40 + Below(40)), Options(traffic)) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) OneStep();
    while (!running_.empty()) {
      tier_.Step();  // computes the last allocations and starts loads
      EndCopies(true);
      tier_.Finish(running_.front());
      running_.pop_front();
    }
    for (int i = 0; i < 100 && tier_.offload().has_pending_work(); ++i) {
      tier_.Step();
      EndCopies(true);
    }
    EXPECT_FALSE(tier_.offload().has_pending_work());
    EXPECT_EQ(tier_.gpu_free(), tier_.gpu().usage().total_blocks) << "a pin was left";
    EXPECT_EQ(tier_.host_free(), tier_.offload().usage().total_blocks);
    CheckEventsMatchTheCachedBlocks();
  }
  int64_t loaded() const { return loaded_; }

 private:
  int64_t Below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }
  bool Chance(int64_t percent) { return Below(100) < percent; }
  SimpleOffloadConfig Options(const Case& traffic) {
    SimpleOffloadConfig config = Eager(20 + Below(150));
    config.mode = traffic.mode;
    config.num_workers = 1 + Below(2);
    return config;
  }

  void OneStep() {
    while (!running_.empty() && Chance(45)) EndOne();
    if (!running_.empty() && Chance(5)) PreemptLast();
    if (Chance(2)) tier_.offload().Reset();
    if (Chance(3)) tier_.gpu().ResetPrefixCache();
    for (CacheRequest& request : running_) {
      if (tier_.loading(request) == 0 && tier_.computed(request) == Length(request)) {
        tier_.Decode(request, Below(3));
      }
    }
    while (running_.size() < 5 && Chance(60) && StartOne()) {
    }
    CheckNothingIsFoundTooEarly(tier_.Step());
    if (Chance(60)) EndCopies(!Chance(10));
    ReadEvents();
  }

  static int64_t Length(const CacheRequest& request) { return std::ssize(request.tokens); }

  bool StartOne() {
    // Many requests share a few long prefixes of random length.
    const int64_t first = 10000 * Below(10);
    std::vector<TokenId> tokens = Tokens(16 + Below(200), first);
    for (int64_t i = Below(20); i > 0; --i) tokens.push_back(Below(3));
    if (!prompts_.empty() && Chance(40)) {
      tokens = prompts_[static_cast<size_t>(Below(std::ssize(prompts_)))];
    } else {
      prompts_.push_back(tokens);
    }
    CacheRequest& request =
        running_.emplace_back(Request("r" + std::to_string(++number_), std::move(tokens)));
    const int64_t loaded = tier_.Start(request, Chance(20) ? 64 : INT64_MAX);
    if (loaded >= 0 && tier_.load_status().ok()) {
      loaded_ += loaded;
      return true;
    }
    if (loaded < 0) tier_.offload().RequestFinished(request, 0);
    if (loaded >= 0) tier_.Finish(request);
    running_.pop_back();
    return false;
  }
  void EndOne() {
    auto request = running_.begin();
    std::advance(request, Below(std::ssize(running_)));
    tier_.Finish(*request);
    running_.erase(request);
  }
  void PreemptLast() {
    CacheRequest& request = running_.back();
    if (tier_.loading(request) > 0 || tier_.waiting(request)) return;
    tier_.Preempt(request);
    if (tier_.Start(request) >= 0 && tier_.load_status().ok()) return;
    if (tier_.gpu().BlockTable(request, GroupIdx(0)).empty()) {
      tier_.offload().RequestFinished(request, 0);
    } else {
      tier_.Finish(request);
    }
    running_.pop_back();
  }
  void EndCopies(bool success) {
    tier_.CompleteStores(success);
    tier_.CompleteLoads(success);
  }

  void CheckNothingIsFoundTooEarly(const TransferStep& step) {
    const auto cached = tier_.offload().Inspect().cached;
    for (const BlockId block : step.store.cpu) {
      for (const auto& [other, content] : cached) EXPECT_NE(other, block);
    }
  }

  // Follows the events as a router does.
  void ReadEvents() {
    for (const Event& event : tier_.offload().TakeEvents()) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) {
        for (const BlockHash& hash : stored->block_hashes) {
          EXPECT_TRUE(known_.insert({*stored->group_idx, hash.integer()}).second) << "stored twice";
        }
        const size_t whole = stored->block_hashes.size() * static_cast<size_t>(stored->block_size);
        EXPECT_EQ(stored->token_ids->size(), whole);
        EXPECT_GT(whole, 0u)
            << "every store event has tokens, because the offload saw all requests";
      } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
        for (const BlockHash& hash : removed->block_hashes) {
          EXPECT_EQ(known_.erase({*removed->group_idx, hash.integer()}), 1u);
        }
      } else {
        known_.clear();
      }
    }
  }
  void CheckEventsMatchTheCachedBlocks() {
    ReadEvents();
    std::set<std::pair<int64_t, uint64_t>> cached;
    for (const auto& [block, content] : tier_.offload().Inspect().cached) {
      cached.insert({content.group.value, content.digest.low64()});
    }
    EXPECT_EQ(known_, cached);
  }

  std::mt19937_64 random_;
  TestTier tier_;
  std::list<CacheRequest> running_;
  std::vector<std::vector<TokenId>> prompts_;
  std::set<std::pair<int64_t, uint64_t>> known_;
  int64_t loaded_ = 0;
  int64_t number_ = 0;
};

class SimpleRandom : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Groups, SimpleRandom,
    ::testing::Values(
        Case{"EagerFull", {Full()}, StoreMode::kEager},
        Case{"EagerFullWindow", {Full(), Window(64)}, StoreMode::kEager},
        Case{"EagerMixedSizes", {Full(32), Window(40, 16), Window(24, 8)}, StoreMode::kEager},
        Case{"EagerMamba", {Full(), Mamba(MambaMode::kAlign)}, StoreMode::kEager},
        Case{"LazyFull", {Full()}, StoreMode::kLazy},
        Case{"LazyFullWindow", {Full(), Window(64)}, StoreMode::kLazy},
        Case{"LazyMixedSizes", {Full(32), Window(40, 16), Window(24, 8)}, StoreMode::kLazy}),
    [](const auto& test) { return test.param.name; });

TEST_P(SimpleRandom, EveryBlockHoldsItsContent) {
  const auto seeds = static_cast<int>(testing::Setting("KVCAST_SEEDS", 3));
  int64_t loaded = 0;
  for (int seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Traffic traffic(GetParam(), static_cast<uint64_t>(seed));
    traffic.Run(300);
    loaded += traffic.loaded();
  }
  EXPECT_GT(loaded, 0) << "no run loaded anything";
}

}  // namespace
}  // namespace kvcast::offload
