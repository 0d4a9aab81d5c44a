// The index avoids known faults of other routers. In each test, a naive index with the fault gives
// a wrong answer. PrefixIndex gives the right answer for the same events.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

// A naive index with the chosen faults. A fault changes the events that the index accepts, the keys
// of its entries, the positions of its blocks, or its removes.
class Mistaken {
 public:
  struct Mistake {
    bool drops_other_groups = false;  // accepts only full-attention kinds
    bool group_zero_only = false;     // accepts only group 0
    bool ignores_group = false;       // one entry per hash, for all groups
    bool ignores_worker = false;      // a remove applies to all workers
    bool ignores_tier = false;        // a remove applies to all tiers
    bool ignores_copies = false;      // does not count the copies of a block
    bool prefix_only = false;         // a remove also removes all blocks that were stored later
    bool whole_span = false;          // places the blocks of a store at the start of its token span
    int64_t block_size = 0;           // drops stores of another block size; 0: accepts all
  };
  explicit Mistaken(const Mistake& mistake) : mistake_(mistake) {}

  void Apply(const EventBatch& batch, int worker = 0) {
    for (const Event& event : batch.events) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) Store(*stored, worker);
      if (const auto* removed = std::get_if<BlockRemoved>(&event)) Remove(*removed, worker);
    }
  }

  // Returns the tokens of the leading blocks of the chain that the group holds on the GPU.
  int64_t Match(const std::vector<BlockHash>& chain, int64_t tokens, int64_t group = 0,
                int worker = 0, int64_t block_size = 16) const {
    int64_t run = 0;
    for (const BlockHash& hash : chain) {
      if ((run + 1) * block_size >= tokens || held_.count(KeyOf(hash, worker, group, "GPU")) == 0) {
        break;
      }
      ++run;
    }
    return run * block_size;
  }

 private:
  using Key = std::pair<uint64_t, std::vector<std::string>>;

  bool Takes(std::optional<int64_t> group) const {
    const int64_t index = group.value_or(0);
    if (mistake_.group_zero_only) return index == 0;
    return !mistake_.drops_other_groups || full_groups_.count(index) > 0;
  }
  Key KeyOf(const BlockHash& hash, int worker, int64_t group, const std::string& tier) const {
    return {
        hash.integer(),
        {mistake_.ignores_worker ? "" : std::to_string(worker),
         mistake_.ignores_group ? "" : std::to_string(group), mistake_.ignores_tier ? "" : tier}};
  }
  void Store(const BlockStored& event, int worker) {
    if (event.kv_cache_spec_kind.value_or("") == "full_attention") {
      full_groups_.insert(event.group_idx.value_or(0));
    }
    if (!Takes(event.group_idx)) return;
    if (mistake_.block_size != 0 && event.block_size != mistake_.block_size) return;
    for (size_t i = 0; i < event.block_hashes.size(); ++i) {
      const Key key = KeyOf(event.block_hashes[i], worker, event.group_idx.value_or(0),
                            event.medium.value_or("GPU"));
      int& copies = held_[key];
      copies = mistake_.ignores_copies ? 1 : copies + 1;
      chain_.push_back(key);
      // The fault: hash i of the store stands for block i of the span.
      if (mistake_.whole_span) block_of_[key] = static_cast<int64_t>(i);
    }
  }
  void Remove(const BlockRemoved& event, int worker) {
    if (!Takes(event.group_idx)) return;
    for (const BlockHash& hash : event.block_hashes) {
      const Key key =
          KeyOf(hash, worker, event.group_idx.value_or(0), event.medium.value_or("GPU"));
      const auto it = held_.find(key);
      if (it == held_.end()) continue;
      if (--it->second == 0) held_.erase(it);
      if (!mistake_.prefix_only) continue;
      auto after = std::find(chain_.begin(), chain_.end(), key);
      for (; after != chain_.end(); ++after) held_.erase(*after);
    }
  }

 public:
  // With whole_span: the block of the prompt that the index assigns to the hash; -1: unknown.
  int64_t BlockOf(const BlockHash& hash, int64_t group) const {
    const auto it = block_of_.find(KeyOf(hash, 0, group, "GPU"));
    return it == block_of_.end() ? -1 : it->second;
  }

 private:
  Mistake mistake_;
  std::map<Key, int> held_;
  std::map<Key, int64_t> block_of_;
  std::vector<Key> chain_;  // in order of arrival
  std::set<int64_t> full_groups_;
};

// Applies each batch to both indexes.
struct Both {
  Both(const Mistaken::Mistake& mistake, const WorkerConfig& config)
      : naive(mistake), ours(config) {}
  void Apply(const EventBatch& batch) {
    naive.Apply(batch);
    ours.Apply(batch);
  }
  Mistaken naive;
  OneWorker ours;
};

// llm-d-router #2362: a store of a window group names fewer blocks than its tokens span. A router
// that counts positions from the start of the span places the blocks wrongly.
TEST(KnownFaults, SparseStoreIsNotReadFromTheFront) {
  Both both({.whole_span = true}, Registered({Full(), Window(32)}));
  const auto chain = Hashes(1, 6);
  BlockStored sparse = StoreWindow({chain[4], chain[5]}, 1, 32);
  sparse.token_ids.emplace(96, 1);
  both.Apply(Batch(StoreFull(chain, 0), sparse));
  EXPECT_EQ(both.naive.BlockOf(chain[4], 1), 0);  // in fact block 4
  EXPECT_EQ(both.ours.Match(chain, 34), 0);       // no window at 32 tokens
  EXPECT_EQ(both.ours.Match(chain, 100), 96);     // a window at 96 tokens
}

// A workaround for the same fault skips the stores of window groups. It also skips the removes of
// window groups, which show that the window is gone.
TEST(KnownFaults, AWindowThatIsGoneIsNotPromised) {
  Both both({.drops_other_groups = true}, Registered({Full(), Window(32)}));
  const auto chain = Hashes(1, 6);
  both.Apply(Batch(StoreFull(chain, 0), StoreWindow(chain, 1, 32), Remove(chain, 1)));
  EXPECT_EQ(both.naive.Match(chain, 100), 96);
  EXPECT_EQ(both.ours.Match(chain, 100), 0);
}

// AMD Infera #98: the keys of the router do not contain the group. A remove in the Mamba group also
// removes the attention block of the same hash.
TEST(KnownFaults, ARemoveStaysInItsGroup) {
  Both both({.ignores_group = true, .ignores_copies = true}, Registered({Full(), Mamba(16)}));
  const auto chain = Hashes(1, 6);
  both.Apply(Batch(Store(chain, 0), Store(chain, 1), Remove(Hashes(1, 3), 1)));
  EXPECT_EQ(both.naive.Match(chain, 100), 0);
  EXPECT_EQ(both.ours.Match(chain, 100), 96);
}

// AIBrix #2723: a remove by one worker removes the block of all workers.
TEST(KnownFaults, ARemoveStaysWithItsWorker) {
  Mistaken naive({.ignores_worker = true, .ignores_copies = true});
  PrefixIndex ours;
  const auto chain = Hashes(1, 6);
  for (int worker : {0, 1}) {
    ASSERT_TRUE(ours.AddWorker(WorkerId(static_cast<uint32_t>(worker)), Registered({Full()})).ok());
    naive.Apply(Batch(Store(chain)), worker);
    ours.Apply(WorkerId(static_cast<uint32_t>(worker)), Batch(Store(chain)));
  }
  naive.Apply(Batch(Remove(chain)), 0);
  ours.Apply(WorkerId(0), Batch(Remove(chain)));
  EXPECT_EQ(naive.Match(chain, 100, 0, 1), 0);
  const auto matches = ours.Match(chain, 16, 100);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].gpu_tokens, 0);
  EXPECT_EQ(matches[1].gpu_tokens, 96);
}

// The same code of AIBrix: a remove from the CPU tier also removes the block on the GPU. In this
// test, the engine stored the CPU blocks before the router joined.
TEST(KnownFaults, ARemoveStaysOnItsTier) {
  Both both({.ignores_tier = true, .ignores_copies = true}, Registered({Full()}));
  const auto chain = Hashes(1, 6);
  both.Apply(Batch(Store(chain), RemoveFrom("CPU", chain)));
  EXPECT_EQ(both.naive.Match(chain, 100), 0);
  EXPECT_EQ(both.ours.Match(chain, 100), 96);
}

// The tests below show the faults of NVIDIA Dynamo's router with hybrid models.

// The engine evicts blocks of a window group. The naive index predicts the full prefix, but only a
// shorter prefix is usable.
TEST(KnownFaults, EvictionOfWindowBlocksIsSeen) {
  Both both({.drops_other_groups = true}, Registered({Full(), Window(48)}));
  const auto chain = Hashes(1, 8);
  both.Apply(Batch(StoreFull(chain, 0), StoreWindow(chain, 1, 48), Remove(Hashes(5, 2), 1)));
  EXPECT_EQ(both.naive.Match(chain, 120), 112);
  EXPECT_EQ(both.ours.Match(chain, 120), 64);
  EXPECT_EQ(both.ours.Match(chain, 200), 64);
}

TEST(KnownFaults, MambaIsReusableAtItsStatesAlone) {
  Both both({.drops_other_groups = true}, Registered({Full(), Mamba(16)}));
  const auto chain = Hashes(1, 8);
  both.Apply(Batch(StoreFull(chain, 0), Store({chain[2]}, 1)));
  EXPECT_EQ(both.naive.Match(chain, 200), 128);
  EXPECT_EQ(both.ours.Match(chain, 200), 48);
}

TEST(KnownFaults, ModelsWithoutFullAttentionAreIndexed) {
  Both both({.drops_other_groups = true}, Registered({}));
  const auto chain = Hashes(1, 8);
  both.Apply(Batch(StoreWindow(chain, 0, 32), StoreWindow(chain, 1, 64)));
  EXPECT_EQ(both.naive.Match(chain, 200), 0);
  EXPECT_EQ(both.ours.Match(chain, 200), 128);
}

// gpt-oss announces the window group as group 0.
TEST(KnownFaults, GroupZeroNeedNotBeFullAttention) {
  Both both({.group_zero_only = true}, Registered({Window(32), Full()}));
  const auto chain = Hashes(1, 8);
  both.Apply(Batch(Store(chain, 0), Store(chain, 1), Remove(Hashes(4, 5), 1)));
  EXPECT_EQ(both.naive.Match(chain, 200), 128);
  EXPECT_EQ(both.ours.Match(chain, 200), 48);
}

// The engine evicts the head of a window group first. An index that keeps only prefixes cannot
// represent this state.
TEST(KnownFaults, TheHeadMayGoBeforeTheTail) {
  Both both({.prefix_only = true}, Registered({Window(32)}));
  const auto chain = Hashes(1, 8);
  both.Apply(Batch(Store(chain), Remove(Hashes(1, 6))));
  EXPECT_EQ(both.naive.Match(Hashes(7, 2), 200), 0);
  EXPECT_EQ(both.ours.Match(chain, 200), 128);
}

// Offloaded window blocks do not become full-attention blocks in the lower tier.
TEST(KnownFaults, OffloadedBlocksKeepTheirGroup) {
  Both both({.ignores_group = true, .ignores_tier = true}, Registered({Full(), Window(32)}));
  const auto chain = Hashes(1, 8);
  BlockStored window = StoreIn("STORAGE", chain);
  window.group_idx = 1;
  both.Apply(Batch(window));
  EXPECT_EQ(both.naive.Match(chain, 200), 128);
  EXPECT_EQ(both.ours.index.Match(chain, 16, 200)[0].with_storage_tokens, 0);
  both.Apply(Batch(StoreIn("STORAGE", chain)));
  EXPECT_EQ(both.ours.index.Match(chain, 16, 200)[0].with_storage_tokens, 128);
}

TEST(KnownFaults, GroupsMayHaveDifferentBlockSizes) {
  Both both({.block_size = 32}, Registered({Full(32), Window(24, 8)}, 8));
  const auto chain = Hashes(1, 16);
  const std::vector<BlockHash> full = {chain[3], chain[7], chain[11], chain[15]};
  both.Apply(Batch(StoreFull(full, 0, 32), StoreWindow({chain[5], chain[6], chain[7]}, 1, 24, 8)));
  EXPECT_EQ(both.naive.Match(full, 200, 0, 0, 32), 128);
  EXPECT_EQ(both.ours.Match(chain, 200, 8), 64);
}

// The token span of a window store covers all computed tokens. Many window stores name no block.
TEST(KnownFaults, StoresOfWindowsAreAlignedToTheirEnd) {
  Both both({.whole_span = true}, Registered({}));
  const auto chain = Hashes(1, 8);
  BlockStored none = StoreWindow({}, 1, 32);
  none.token_ids.emplace(64, 1);
  BlockStored last = StoreWindow({chain[6], chain[7]}, 1, 32);
  last.token_ids.emplace(128, 1);
  both.Apply(Batch(StoreFull(chain, 0), none, last));
  EXPECT_EQ(both.naive.BlockOf(chain[7], 1), 1);  // in fact block 7
  EXPECT_EQ(both.ours.Match(chain, 129), 128);
  EXPECT_EQ(both.ours.Match(chain, 128), 0);
}

TEST(KnownFaults, SeveralCopiesOfABlockNeedAsManyRemoves) {
  Both both({.ignores_copies = true}, Registered({Full()}));
  const auto chain = Hashes(1, 8);
  both.Apply(Batch(Store(chain), Store(chain), Remove(chain)));
  EXPECT_EQ(both.naive.Match(chain, 200), 0);
  EXPECT_EQ(both.ours.Match(chain, 200), 128);
}

// A clear applies to all groups of the GPU and to no other tier.
TEST(KnownFaults, AClearEmptiesAllGroupsOfTheGpu) {
  Both both({}, Registered({Full(), Window(32)}));
  const auto chain = Hashes(1, 8);
  BlockStored window = StoreIn("CPU", chain);
  window.group_idx = 1;
  // The naive index ignores the clear, because a clear has no group.
  both.Apply(
      Batch(Store(chain, 0), Store(chain, 1), StoreIn("CPU", chain), window, AllBlocksCleared{}));
  EXPECT_EQ(both.naive.Match(chain, 200), 128);
  const WorkerMatch match = both.ours.index.Match(chain, 16, 200)[0];
  EXPECT_EQ(match.gpu_tokens, 0);
  EXPECT_EQ(match.with_cpu_tokens, 128);
}

// A wrong overlap (the predicted part of the prompt) leads to a wrong decision. In this test, the
// decision selects the worker for the prefill.
TEST(KnownFaults, ADecisionOnTheOverlapFollowsTheWorkerThatCanServe) {
  Mistaken naive({.drops_other_groups = true});
  PrefixIndex ours;
  const auto chain = Hashes(1, 8);
  const EventBatch window_lost =
      Batch(StoreFull(chain, 0), StoreWindow(chain, 1, 32), Remove(chain, 1));
  const EventBatch shorter = Batch(StoreFull(Hashes(1, 4), 0), StoreWindow(Hashes(1, 4), 1, 32));
  for (uint32_t worker : {0, 1}) {
    ASSERT_TRUE(ours.AddWorker(WorkerId(worker), Registered({Full(), Window(32)})).ok());
    const EventBatch& batch = worker == 0 ? window_lost : shorter;
    naive.Apply(batch, static_cast<int>(worker));
    ours.Apply(WorkerId(worker), batch);
  }
  EXPECT_GT(naive.Match(chain, 200, 0, 0), naive.Match(chain, 200, 0, 1));
  const auto matches = ours.Match(chain, 16, 200);
  EXPECT_LT(matches[0].gpu_tokens, matches[1].gpu_tokens);
}

}  // namespace
}  // namespace kvcast::testing
