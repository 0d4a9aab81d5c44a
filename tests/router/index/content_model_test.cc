// Applies random events of workers with one full-attention group. An exact answer must equal the
// leading run of held blocks, for a query by content, by hash, or by both. The exact answers with
// loads from the CPU tier are compared too. Now and then, workers are saved, restarted and
// restored. In some fleets, a hostile worker sends false stores of the blocks of the other workers.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "kvcast/router/prompt_contents.h"
#include "src/base/sanitizers.h"
#include "src/stream_sim/saved_index.h"
#include "tests/support/content_events.h"
#include "tests/support/score_check.h"

namespace kvcast::testing {
namespace {

constexpr int64_t kBlock = 4;
constexpr size_t kBlocks = 150;  // blocks per prompt; more than two runs
constexpr size_t kPrompts = 6;
constexpr size_t kFleetWorkers = 6;
constexpr int kSteps = kSanitized ? 2000 : 10000;
constexpr WorkerId kHostile{99};

enum class Way : uint8_t { kContent, kHash, kBoth };

struct Fleet {
  size_t families;   // the workers of a family use the same hash seed
  uint64_t offload;  // one in `offload` stores is on the CPU tier
  size_t shards = 1;
  // Now and then, workers are restored. If a store waited for the content of its parent block, the
  // blocks of the store then stay unnamed. So fewer answers are exact.
  bool restores = false;
  bool hostile = false;  // there is also the worker kHostile, and its answers are not compared
};

class ContentModel : public ::testing::TestWithParam<Fleet> {
 protected:
  ContentModel() {
    for (size_t p = 0; p < kPrompts; ++p) {
      std::vector<TokenId> tokens;
      if (p > 0) {  // a beginning of an earlier prompt
        tokens = tokens_[random_() % p];
        tokens.resize(random_() % kBlocks * kBlock);
      }
      while (tokens.size() < kBlocks * kBlock)
        tokens.push_back(static_cast<TokenId>(random_() % 9));
      contents_.push_back(PromptContents(index_.keys(), tokens, kBlock, 0, {}));
      tokens_.push_back(std::move(tokens));
    }
    for (size_t w = 0; w < kFleetWorkers; ++w) {
      WorkerConfig config = Registered({Full(kBlock)}, kBlock);
      config.offload_rule = OffloadRule::kConnector;
      EXPECT_TRUE(index_.AddWorker(Id(w), config).ok());
    }
    WorkerConfig hostile = Registered({Full(kBlock / 2), Full(kBlock)}, kBlock / 2);
    hostile.repeats_are_refreshes = true;
    if (GetParam().hostile) {
      EXPECT_TRUE(index_.AddWorker(kHostile, hostile).ok());
    }
  }

  static WorkerId Id(size_t worker) { return WorkerId(static_cast<uint32_t>(worker)); }
  static uint64_t FamilyOf(size_t worker) { return worker % GetParam().families; }
  uint64_t HashOf(uint64_t family, size_t prompt, size_t block) const {
    return contents_[prompt][block] ^ family * 0x5555555555555555;
  }

  void Store(size_t worker) {
    const size_t prompt = random_() % kPrompts;
    const size_t begin = random_() % 3 == 0 ? random_() % kBlocks : 0;
    const size_t end = std::min(kBlocks, begin + 1 + random_() % 100);
    std::vector<BlockHash> hashes;
    for (size_t i = begin; i < end; ++i) {
      hashes.push_back(Hash(HashOf(FamilyOf(worker), prompt, i)));
    }
    std::optional<BlockHash> parent;
    if (begin > 0) parent = Hash(HashOf(FamilyOf(worker), prompt, begin - 1));
    const auto begin_of = [&](size_t block) {
      return tokens_[prompt].begin() + static_cast<std::ptrdiff_t>(block * kBlock);
    };
    BlockStored event = StoreTokens(hashes, {begin_of(begin), begin_of(end)}, parent);
    if (random_() % 50 == 0) event.token_ids.reset();
    const bool on_gpu = random_() % GetParam().offload != 0;
    event.medium = on_gpu ? "GPU" : "CPU";
    index_.Apply(Id(worker), Batch(event));
    for (const BlockHash& hash : hashes) {
      if (on_gpu) {
        ++held_[worker][hash.integer()];
      } else {
        on_cpu_[worker].insert(hash.integer());
      }
    }
  }

  // Removes up to 59 blocks of one prompt, mostly from its end, as engines do.
  void RemoveSome(size_t worker) {
    const size_t prompt = random_() % kPrompts;
    std::vector<BlockHash> hashes;
    size_t block = kBlocks;
    for (size_t n = random_() % 60; n > 0 && block > 0; --n) {
      block = random_() % 40 == 0 ? random_() % kBlocks : block - 1;
      const uint64_t hash = HashOf(FamilyOf(worker), prompt, block);
      const auto copies = held_[worker].find(hash);
      if (copies == held_[worker].end()) continue;
      if (--copies->second == 0) held_[worker].erase(copies);
      hashes.push_back(Hash(hash));
    }
    index_.Apply(Id(worker), Batch(Remove(hashes)));
  }

  // The hostile worker stores a prompt and removes its last block. Then it stores this block as no
  // engine stores it.
  void SendFalseStore() {
    // The index uses no names of a worker with too many ambiguous names. A restart forgets these
    // names.
    if (random_() % 100 == 0) index_.RestartWorker(kHostile);
    const size_t prompt = random_() % kPrompts;
    const size_t end = 2 + random_() % (kBlocks - 1);
    std::vector<BlockHash> hashes;
    for (size_t i = 0; i < end; ++i) hashes.push_back(Hash(HashOf(0, prompt, i)));
    const BlockHash last = hashes[end - 1];
    const auto begin_of = [&](size_t block) {
      return tokens_[prompt].begin() + static_cast<std::ptrdiff_t>(block * kBlock);
    };
    index_.Apply(kHostile,
                 Batch(StoreTokens(hashes, {begin_of(0), begin_of(end)}, std::nullopt, 1)));
    index_.Apply(kHostile, Batch(Remove({last}, 1)));
    const BlockHash unknown = Hash(random_());
    const std::vector<TokenId> others =
        Tokens(static_cast<TokenId>(100 + random_() % 1'000'000), 8);
    BlockStored false_store = StoreTokens({Hash(random_()), last}, others, std::nullopt, 1);
    const std::vector<std::optional<ExtraKeys>> hidden = {ExtraKeys{ExtraKey{}}};
    switch (random_() % 4) {
      case 0:  // behind another block
        false_store.extra_keys = {std::nullopt, hidden[0]};
        break;
      case 1:  // behind a false parent
        false_store.parent_block_hash = unknown;
        break;
      case 2:  // as a child of a false parent
        false_store = StoreTokens({last}, {others.begin(), others.begin() + kBlock}, unknown, 1);
        index_.Apply(kHostile, Batch(false_store, Remove({last}, 1)));
        index_.Apply(
            kHostile,
            Batch(WithExtraKeys(
                StoreTokens({unknown}, false_store.token_ids.value(), std::nullopt, 1), hidden)));
        break;
      default:  // in another block size
        false_store = StoreTokens({unknown, last}, {begin_of(end - 1), begin_of(end)},
                                  hashes[end - 2], 0, kBlock / 2);
        break;
    }
    index_.Apply(kHostile, Batch(false_store));
  }

  void Clear(size_t worker) {
    held_[worker].clear();
    index_.Apply(Id(worker), Batch(AllBlocksCleared{}));
  }

  // Saves all workers. Then restarts and restores some of them.
  void SaveAndRestore() {
    std::vector<WorkerId> ids;
    for (size_t w = 0; w < kFleetWorkers; ++w) ids.push_back(Id((w + 1) % kFleetWorkers));
    const sim::SavedIndex saved(index_, ids);
    for (const WorkerId id : ids) {
      if (random_() % 2 == 0) continue;
      const IndexCounters before = index_.counters(id);
      index_.RestartWorker(id);
      ASSERT_TRUE(saved.Restore(index_, id).ok());
      const IndexCounters after = index_.counters(id);
      ASSERT_EQ(after.residencies, before.residencies);
      ASSERT_EQ(after.unnamed, before.unnamed);
    }
  }

  void Change() {
    const size_t worker = random_() % kFleetWorkers;
    const uint64_t kind = random_() % 200;
    if (kind == 0) {
      Clear(worker);
    } else if (kind < 90) {
      Store(worker);
    } else {
      RemoveSome(worker);
    }
  }

  int64_t Truth(size_t worker, size_t prompt, int64_t tokens) const {
    int64_t run = 0;
    while ((run + 1) * kBlock < tokens && run < int64_t{kBlocks} &&
           held_[worker].contains(HashOf(FamilyOf(worker), prompt, static_cast<size_t>(run)))) {
      ++run;
    }
    return run * kBlock;
  }

  // Returns the reusable tokens with loads from the CPU tier. Behind the hit on the GPU (`local`),
  // only blocks on the CPU tier count.
  int64_t TruthWithCpu(size_t worker, size_t prompt, int64_t tokens, int64_t local) const {
    int64_t end = local / kBlock;
    while ((end + 1) * kBlock <= tokens && end < int64_t{kBlocks} &&
           on_cpu_[worker].contains(HashOf(FamilyOf(worker), prompt, static_cast<size_t>(end)))) {
      ++end;
    }
    return std::min(end * kBlock, tokens - 1);
  }

  void Compare(size_t prompt, Way way, uint64_t family) {
    const auto tokens = static_cast<int64_t>(1 + random_() % (kBlocks * kBlock));
    const auto units = static_cast<size_t>(tokens / kBlock);
    std::vector<BlockHash> hashes;
    for (size_t i = 0; i < units; ++i) hashes.push_back(Hash(HashOf(family, prompt, i)));
    std::vector<WorkerId> ids;
    for (size_t w = 0; w < kFleetWorkers; ++w) {
      if (way == Way::kContent || FamilyOf(w) == family) ids.push_back(Id(w));
    }
    PromptBlocks query = {.hash_block_size = kBlock,
                          .prompt_tokens = tokens,
                          .contents = contents_[prompt],
                          .hashes = hashes};
    query.contents = query.contents.first(way == Way::kHash ? 0 : units);
    if (way == Way::kContent) query.hashes = {};
    // Without ids, the query is for all workers.
    if (!GetParam().hostile && ids.size() == kFleetWorkers && random_() % 4 > 0) ids.clear();
    const auto matches = index_.Match(query, ids);
    ASSERT_EQ(matches.size(), ids.empty() ? kFleetWorkers : ids.size());
    ExpectScoresOf(index_, query, matches, ids);
    for (const WorkerMatch& match : matches) {
      const bool hidden = way == Way::kContent && match.unnamed_gpu > 0;
      if (!match.certain || match.ambiguous || match.unknown != 0 || hidden) continue;
      const int64_t truth = Truth(match.worker.value, prompt, tokens);
      ASSERT_EQ(match.gpu_tokens, truth)
          << "worker " << match.worker.value << ", prompt " << prompt << ", way "
          << static_cast<int>(way) << ", tokens " << tokens;
      if (match.unknown_with_cpu == 0 && (way != Way::kContent || !match.has_unnamed)) {
        const int64_t with_cpu = TruthWithCpu(match.worker.value, prompt, tokens, truth);
        ASSERT_EQ(match.with_cpu_tokens, std::max(truth, with_cpu));
        loads_ += with_cpu > truth;
      }
      ++exact_[static_cast<size_t>(way)];
      hits_ += truth > 0;
    }
  }

  std::mt19937_64 random_{20261124};
  PrefixIndex index_{ContentKeys::OfProcess(), GetParam().shards};
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<std::vector<ContentKey>> contents_;
  std::array<std::map<uint64_t, int>, kFleetWorkers> held_;  // number of copies, by hash
  std::array<std::set<uint64_t>, kFleetWorkers> on_cpu_;
  std::array<int, 3> exact_{};
  int loads_ = 0;
  int hits_ = 0;
};

// With one family, no two stretches of a prompt overlap.
INSTANTIATE_TEST_SUITE_P(Fleets, ContentModel,
                         ::testing::Values(Fleet{1, 1000000}, Fleet{1, 20}, Fleet{2, 20},
                                           Fleet{1, 20, 3}, Fleet{2, 20, 1, true},
                                           Fleet{1, 20, 3, true}, Fleet{1, 20, 1, false, true},
                                           Fleet{2, 20, 1, true, true}));

TEST_P(ContentModel, ExactAnswersAreTheLeadingRun) {
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(step);
    // One in 100 steps has more changes than the change log holds.
    for (int change = random_() % 100 == 0 ? 70 : 1; change > 0; --change) Change();
    if (GetParam().restores && random_() % 50 == 0) SaveAndRestore();
    if (GetParam().hostile && random_() % 4 == 0) SendFalseStore();
    const size_t prompt = random_() % kPrompts;
    for (const Way way : {Way::kContent, Way::kHash, Way::kBoth}) {
      Compare(prompt, way, random_() % GetParam().families);
    }
  }
  const int share = GetParam().restores ? 2 : 1;
  for (const int exact : exact_) EXPECT_GT(exact, kSteps / 5 / share);
  EXPECT_GT(hits_, kSteps / 2 / share);
  if (GetParam().offload < kSteps) {
    EXPECT_GT(loads_, 0);
  }
}

}  // namespace
}  // namespace kvcast::testing
