// Under random traffic, managers of random configurations keep their invariants after every call,
// and the events determine the cached blocks.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>

#include "tests/engine/random_pick.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

GroupSpec AnyGroup(Random& random, int64_t hash_block_size) {
  const int64_t size = hash_block_size << Pick(random, 0, 2);
  switch (Pick(random, 0, 4)) {
    case 0:
    case 1:
      return Full(size);
    case 2:
      return Window(Pick(random, 2, 12 * hash_block_size), size);
    case 3:
      return Mamba(MambaMode::kAlign, size);
    default:
      return Chunked(size * Pick(random, 1, 4), size);
  }
}

CacheConfig AnyConfig(Random& random) {
  const int64_t hash_block_size = 4;
  CacheConfig config;
  const int64_t count = Pick(random, 1, 4);
  for (int64_t i = 0; i < count; ++i) config.groups.push_back(AnyGroup(random, hash_block_size));
  for (GroupSpec& group : config.groups) {
    if (group.kind == SpecKind::kMamba) group.speculative_blocks = Pick(random, 0, 2);
    const bool can_be_eagle = group.kind != SpecKind::kChunkedLocalAttention;
    group.eagle = can_be_eagle && Pick(random, 0, 3) == 0;
  }
  if (count > 1) config.hash_block_size = hash_block_size;
  config.num_blocks = Pick(random, 40, 120);
  config.max_model_len = 400;
  config.max_in_flight_tokens = 64;
  if (Pick(random, 0, 1) == 0) config.retention_interval = 0;
  return config;
}

// The cached blocks in the view of a consumer that counts stores and removes.
class EventCounter {
 public:
  void Apply(const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) ApplyStored(*stored);
      if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
        auto& copies = copies_[{*removed->group_idx, removed->block_hashes.at(0).integer()}];
        EXPECT_GT(copies, 0) << "a remove names a hash that is not stored";
        --copies;
      }
      if (std::holds_alternative<AllBlocksCleared>(event)) copies_.clear();
    }
    std::erase_if(copies_, [](const auto& entry) { return entry.second == 0; });
  }
  void ExpectEqual(const CacheManager& cache) const {
    std::map<std::pair<int64_t, uint64_t>, int64_t> expected;
    for (uint32_t group = 0; group < cache.config().groups.size(); ++group) {
      for (const CachedKey& key : cache.CachedKeys(GroupIdx(group))) {
        expected[{group, key.digest.low64()}] = key.copies;
      }
    }
    EXPECT_EQ(copies_, expected);
  }

 private:
  void ApplyStored(const BlockStored& stored) {
    for (const BlockHash& hash : stored.block_hashes) {
      ++copies_[{*stored.group_idx, hash.integer()}];
    }
    const size_t tokens = stored.token_ids->size();
    EXPECT_EQ(tokens % static_cast<size_t>(stored.block_size), 0u);
    EXPECT_GE(tokens / static_cast<size_t>(stored.block_size), stored.block_hashes.size());
    EXPECT_EQ(stored.extra_keys.has_value(), !stored.block_hashes.empty());
  }
  std::map<std::pair<int64_t, uint64_t>, int64_t> copies_;
};

class Traffic {
 public:
  Traffic(Random& random, const CacheConfig& config) : random_(random), engine_(config) {}

  void Step() {
    engine_.cache().BeginStep();
    for (auto it = running_.begin(); it != running_.end();) {
      it = Continue(*it) ? std::next(it) : Stop(it);
    }
    if (running_.size() < 5) Admit();
    engine_.cache().ReleaseCopies(engine_.cache().TakeCopies());
    if (Pick(random_, 0, 30) == 0) engine_.cache().ResetPrefixCache();
    if (Pick(random_, 0, 5) == 0) EvictOne();
    counter_.Apply(engine_.cache().TakeEvents());
    counter_.ExpectEqual(engine_.cache());
  }
  int64_t hits() const { return hits_; }

 private:
  struct Running {
    CacheRequest request;
    int64_t computed = 0;
    int64_t tokens_max = 0;
  };

  bool Continue(Running& run) {
    const auto known = static_cast<int64_t>(run.request.tokens.size());
    if (run.computed == known) run.request.tokens.push_back(Pick(random_, 0, 3));
    const auto total = static_cast<int64_t>(run.request.tokens.size());
    if (total > run.tokens_max) return false;
    const int64_t step = StepOnGrid(run, std::min(total - run.computed, Pick(random_, 1, 64)));
    if (!engine_.Allocate(run.request, {.computed_tokens = run.computed, .new_tokens = step})) {
      return false;  // preempted
    }
    run.computed += step;
    return true;
  }
  // A scheduler ends a step of a prompt on a block boundary, or on the prompt's last hash boundary.
  int64_t StepOnGrid(const Running& run, int64_t step) const {
    const int64_t prompt = run.request.prompt_tokens;
    const int64_t grid = engine_.config().scheduler_block_size;
    const int64_t hash_block_size = engine_.config().hash_block_size;
    const int64_t end = run.computed + step;
    if (end >= prompt) return step;
    const int64_t on_grid = end / grid * grid;
    const int64_t boundary = prompt / hash_block_size * hash_block_size;
    if (on_grid > run.computed) return on_grid - run.computed;
    return boundary > run.computed ? boundary - run.computed : prompt - run.computed;
  }
  std::vector<Running>::iterator Stop(std::vector<Running>::iterator it) {
    engine_.Free(it->request);
    return running_.erase(it);
  }
  void Admit() {
    // Few distinct tokens make prefixes repeat.
    std::vector<TokenId> tokens(static_cast<size_t>(Pick(random_, 1, 200)));
    const TokenId base = Pick(random_, 0, 1);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = i < 150 ? base : Pick(random_, 0, 3);
    Running run{Request(std::to_string(next_id_++), std::move(tokens)), 0, 0};
    const auto total = static_cast<int64_t>(run.request.tokens.size());
    run.tokens_max = std::min<int64_t>(400, total + Pick(random_, 1, 30));
    const PrefixHit hit = engine_.Lookup(run.request);
    EXPECT_LT(hit.tokens, total);
    EXPECT_EQ(hit.tokens % HitAlignment(engine_.config()), 0);
    for (size_t g = 0; g < hit.blocks.size(); ++g) {
      const int64_t size = engine_.config().groups[g].block_size;
      EXPECT_EQ(static_cast<int64_t>(hit.blocks[g].size()), CeilDiv(hit.tokens, size));
    }
    run.computed = hit.tokens;
    AllocateArgs args;
    args.new_tokens = StepOnGrid(run, std::min(total - hit.tokens, Pick(random_, 1, 64)));
    args.hit = &hit;
    args.full_sequence_must_fit = Pick(random_, 0, 1) == 0;
    if (!engine_.Allocate(run.request, args)) return;
    hits_ += hit.tokens > 0 ? 1 : 0;
    run.computed += args.new_tokens;
    running_.push_back(std::move(run));
  }
  void EvictOne() {
    const auto last = static_cast<int64_t>(engine_.config().num_blocks) - 1;
    engine_.Evict(static_cast<uint32_t>(Pick(random_, 1, last)));
  }

  Random& random_;
  TestEngine engine_;
  std::vector<Running> running_;
  EventCounter counter_;
  int next_id_ = 0;
  int64_t hits_ = 0;
};

TEST(ManagerRandom, InvariantsHoldAndEventsDetermineTheCachedBlocks) {
  int64_t hits = 0;
  int configs = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    const auto config = ValidateCacheConfig(AnyConfig(random));
    if (!config.ok()) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    ++configs;
    Traffic traffic(random, *config);
    for (int step = 0; step < 60; ++step) {
      traffic.Step();
      if (::testing::Test::HasFailure()) return;
    }
    hits += traffic.hits();
  }
  EXPECT_GT(configs, 60);
  EXPECT_GT(hits, 500);
}

}  // namespace
}  // namespace kvcast::engine
