// Applies random operations to five kinds of workers. The index gives the same answers as
// NaiveWorker.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "router/index/run_pool.h"
#include "src/base/sanitizers.h"
#include "src/stream_sim/saved_index.h"
#include "tests/router/index/naive_index.h"
#include "tests/support/index_events.h"
#include "tests/support/score_check.h"
#include "tests/support/setting.h"

namespace kvcast::testing {
namespace {

constexpr int64_t kDefaultOperations = kSanitized ? 12000 : 60000;
constexpr int kPrompts = 10;
constexpr int64_t kPromptTokens = 128 * 16;
static_assert(kPromptTokens / 16 >= 2 * router::kRunKeys, "a prompt has more than one run");
constexpr const char* kMedia[] = {"GPU", "CPU", "STORAGE"};

// Returns the hash chains of prompts that share prefixes, for one hash_block_size.
std::vector<std::vector<uint64_t>> Chains(int64_t hash_block_size, std::mt19937_64& random) {
  std::vector<std::vector<uint64_t>> chains;
  for (uint64_t prompt = 0; prompt < kPrompts; ++prompt) {
    std::vector<uint64_t> chain;
    if (prompt > 0) {
      chain = chains[random() % prompt];
      chain.resize(random() % chain.size());
    }
    while (std::ssize(chain) * hash_block_size < kPromptTokens) chain.push_back(random());
    chains.push_back(chain);
  }
  return chains;
}

std::vector<BlockHash> ToHashes(const std::vector<uint64_t>& values) {
  std::vector<BlockHash> hashes;
  for (const uint64_t value : values) hashes.push_back(BlockHash::FromUnsigned(value));
  return hashes;
}

class ModelRun {
 public:
  ModelRun(uint64_t seed, size_t shards) : random_(seed), index_(ContentKeys::OfProcess(), shards) {
    chains_[16] = Chains(16, random_);
    chains_[8] = Chains(8, random_);
    AddModel({Full()}, 16, 16);
    AddModel({Window(40), Full()}, 16, 16);
    AddModel({Full(32), Window(24, 8)}, 8, 32);
    AddModel({Full(32), Mamba(32)}, 16, 16);
    AddModel({Chunked(64), Window(64)}, 16, 16);
    for (size_t i = 0; i < models_.size(); ++i) Register(i);
  }

  void Step(int64_t step) {
    const size_t worker = random_() % models_.size();
    const uint64_t kind = random_() % 2000;
    if (kind == 0) {
      ReplaceWorker(worker);
    } else if (kind == 1) {
      Forget(worker);
    } else if (kind == 2) {
      RegisterAgain(worker);
    } else if (kind == 3) {
      SaveAndRestore();
    } else if (kind < 20) {
      ClearTier(worker);
    } else if (kind < 1150) {
      StoreRange(worker);
    } else {
      RemoveSome(worker);
    }
    if (step % 4 == 0) CompareAll(step);
  }

  int64_t partial_hits() const { return partial_hits_; }
  int64_t load_hits() const { return load_hits_; }
  int64_t compared() const { return compared_; }

 private:
  WorkerId Id(size_t worker) const {
    return WorkerId(generation_[worker] * 100 + static_cast<uint32_t>(worker));
  }

  void AddModel(std::vector<GroupSpec> groups, int64_t hash_block_size, int64_t alignment) {
    models_.push_back({std::move(groups), hash_block_size, alignment, {}});
    generation_.push_back(0);
  }

  void Register(size_t worker) {
    const NaiveWorker& model = models_[worker];
    ASSERT_TRUE(index_.AddWorker(Id(worker), Registered(model.groups, model.hash_block_size)).ok());
  }

  void ReplaceWorker(size_t worker) {
    Flush(worker);
    index_.RemoveWorker(Id(worker));
    models_[worker].copies.clear();
    ++generation_[worker];
    Register(worker);
  }

  // In half of the calls, removes the worker and adds it again with the same id. The index must
  // refuse a worker whose id is present, and must then change nothing.
  void RegisterAgain(size_t worker) {
    Flush(worker);
    if (random_() % 2 == 0) {
      index_.RemoveWorker(Id(worker));
      models_[worker].copies.clear();
      Register(worker);
    }
    EXPECT_FALSE(index_.AddWorker(Id(worker), Registered({Full()})).ok());
  }

  // Saves all workers. Then restarts and restores some of them.
  void SaveAndRestore() {
    std::vector<WorkerId> ids;
    for (size_t worker = 0; worker < models_.size(); ++worker) {
      Flush(worker);
      ids.push_back(Id(worker));
    }
    const sim::SavedIndex saved(index_, ids);
    for (const WorkerId id : ids) {
      if (random_() % 2 == 0) continue;
      index_.RestartWorker(id);
      EXPECT_TRUE(saved.Restore(index_, id).ok());
    }
  }

  void Forget(size_t worker) {
    Flush(worker);
    if (random_() % 2 == 0) {
      index_.ClearWorker(Id(worker));
    } else {
      index_.RestartWorker(Id(worker));
    }
    models_[worker].copies.clear();
  }

  // A clear may name its tier. A clear without a tier applies to the GPU.
  void ClearTier(size_t worker) {
    const int tier = static_cast<int>(random_() % 3);
    AllBlocksCleared event;
    if (tier != 0 || random_() % 2 == 0) event.medium = kMedia[tier];
    Apply(worker, Batch(event));
    models_[worker].Clear(tier);
  }

  // Collects events until the batch of the worker is flushed. A batch may have events of all kinds.
  void Apply(size_t worker, const EventBatch& events) {
    std::vector<Event>& pending = pending_[worker].events;
    pending.insert(pending.end(), events.events.begin(), events.events.end());
    if (random_() % 2 == 0) Flush(worker);
  }

  // Half of the batches have a data-parallel rank, which the index ignores.
  void Flush(size_t worker) {
    EventBatch batch = std::exchange(pending_[worker], {});
    if (random_() % 2 == 0) batch.data_parallel_rank = static_cast<int64_t>(random_() % 4);
    index_.Apply(Id(worker), batch);
  }

  // Returns a random number of blocks, at least 1. The maximum is `usual`. In a tenth of the calls,
  // the maximum is the length of three runs of the index.
  uint64_t Length(uint64_t usual) {
    return 1 + random_() % (random_() % 10 == 0 ? 3 * router::kRunKeys : usual);
  }

  // Stores a run of blocks of one prompt in one group, sometimes with holes. In a fifth of the
  // calls, each entry covers one hash unit, so entries may be partial.
  void StoreRange(size_t worker) {
    NaiveWorker& model = models_[worker];
    const auto group = static_cast<int64_t>(random_() % model.groups.size());
    const int tier = random_() % 3 == 0 ? static_cast<int>(random_() % 3) : 0;
    const std::vector<uint64_t>& chain = chains_[model.hash_block_size][random_() % kPrompts];
    const int64_t size = model.groups[static_cast<size_t>(group)].block_size;
    const int64_t step = random_() % 5 == 0 ? model.hash_block_size : size;
    const int64_t positions = kPromptTokens / step;
    int64_t position =
        random_() % 2 == 0 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(positions));
    std::vector<uint64_t> stored;
    for (uint64_t n = Length(12); n > 0 && position < positions; --n) {
      if (random_() % 10 != 0) {
        stored.push_back(
            chain[static_cast<size_t>((position + 1) * step / model.hash_block_size - 1)]);
      }
      ++position;
    }
    for (const uint64_t hash : stored) model.Store(tier, group, hash);
    BlockStored event = Store(ToHashes(stored), group);
    event.medium = kMedia[tier];
    event.block_size = step;
    Apply(worker, Batch(event));
  }

  // Removes random held entries, and sometimes an entry that is not held.
  void RemoveSome(size_t worker) {
    NaiveWorker& model = models_[worker];
    EventBatch batch;
    for (uint64_t n = Length(8); n > 0 && !model.copies.empty(); --n) {
      auto it = model.copies.lower_bound(
          {static_cast<int>(random_() % 3), static_cast<int64_t>(random_() % 2), random_()});
      if (it == model.copies.end()) it = model.copies.begin();
      auto [tier, group, hash] = it->first;
      if (random_() % 16 == 0) hash = random_();
      model.Remove(tier, group, hash);
      BlockRemoved event = Remove({BlockHash::FromUnsigned(hash)}, group);
      event.medium = kMedia[tier];
      batch.events.emplace_back(event);
    }
    Apply(worker, batch);
  }

  // The answer may leave out a load of whole blocks that gains less than a block.
  void CompareLoads(const NaiveWorker& model, const std::vector<uint64_t>& chain, int64_t tokens,
                    const WorkerMatch& match) {
    const int64_t block = model.groups[0].block_size;
    const int64_t local = match.gpu_tokens;
    const int64_t answers[] = {match.with_cpu_tokens, match.with_storage_tokens};
    for (int last_tier = 1; last_tier <= 2; ++last_tier) {
      const int64_t loaded = model.WithLoads(chain, tokens, local, last_tier);
      const int64_t answer = answers[last_tier - 1];
      const bool gains_little = loaded - local < block;
      if (gains_little && answer == model.WithTail(chain, tokens, local, last_tier)) continue;
      ++load_hits_;
      ASSERT_EQ(answer, model.WithTail(chain, tokens, loaded, last_tier))
          << "tiers to " << last_tier << ", local " << local << ", prompt of " << tokens;
    }
  }

  void CompareAll(int64_t step) {
    for (size_t worker = 0; worker < models_.size(); ++worker) Flush(worker);
    const size_t prompt = random_() % kPrompts;
    const auto tokens = static_cast<int64_t>(random_() % (kPromptTokens + 40)) + 1;
    for (const int64_t hash_block_size : {int64_t{8}, int64_t{16}}) {
      std::vector<uint64_t> chain = chains_[hash_block_size][prompt];
      chain.resize(std::min(chain.size(), static_cast<size_t>(tokens / hash_block_size)));
      const std::vector<BlockHash> hashes = ToHashes(chain);
      const auto matches = index_.Match(hashes, hash_block_size, tokens);
      testing::ExpectScoresOf(
          index_, {.hash_block_size = hash_block_size, .prompt_tokens = tokens, .hashes = hashes},
          matches);
      size_t answered = 0;
      for (size_t i = 0; i < models_.size(); ++i) {
        if (models_[i].hash_block_size != hash_block_size) continue;
        const auto match =
            std::find_if(matches.begin(), matches.end(),
                         [&](const WorkerMatch& candidate) { return candidate.worker == Id(i); });
        ASSERT_NE(match, matches.end());
        ++answered;
        const int64_t expected = models_[i].Match(chain, tokens);
        partial_hits_ += expected > 0 && expected < (std::ssize(chain) - 1) * hash_block_size;
        ASSERT_EQ(match->gpu_tokens, expected)
            << "step " << step << ", worker kind " << i << ", prompt of " << tokens << " tokens";
        CompareLoads(models_[i], chain, tokens, *match);
        ASSERT_EQ(index_.counters(Id(i)).residencies, models_[i].copies.size());
        ++compared_;
      }
      ASSERT_EQ(matches.size(), answered);
    }
  }

  std::mt19937_64 random_;
  std::map<int64_t, std::vector<std::vector<uint64_t>>> chains_;
  std::vector<NaiveWorker> models_;
  std::vector<uint32_t> generation_;
  std::map<size_t, EventBatch> pending_;  // by worker
  PrefixIndex index_;
  int64_t partial_hits_ = 0;
  int64_t load_hits_ = 0;
  int64_t compared_ = 0;
};

// The parameter is the number of shards.
class PrefixIndexModel : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Shards, PrefixIndexModel, ::testing::Values(1, 3));

TEST_P(PrefixIndexModel, GivesTheAnswersOfNaiveWorker) {
  const auto seed = static_cast<uint64_t>(testing::Setting("KVCAST_MODEL_SEED", 20261121));
  const int64_t operations =
      testing::Setting("KVCAST_MODEL_OPS", kDefaultOperations) / (GetParam() == 1 ? 1 : 4);
  SCOPED_TRACE("seed " + std::to_string(seed));
  ModelRun run(seed, GetParam());
  for (int64_t step = 0; step < operations && !HasFatalFailure(); ++step) run.Step(step);
  std::cout << "seed " << seed << ": " << operations << " operations, " << run.compared()
            << " answers compared\n";
  // The comparison needs many prompts that are reusable in part.
  EXPECT_GT(run.partial_hits(), operations / 20);
  EXPECT_GT(run.load_hits(), operations / 20);
  RecordProperty("partial_hits", std::to_string(run.partial_hits()));
}

}  // namespace
}  // namespace kvcast::testing
