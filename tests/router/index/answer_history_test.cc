// Row C5 of tests/RELIABILITY.md. Batches are applied during a query. The answer must be the true
// answer after some number of batches of the worker. This number is at least the number of batches
// that were applied before the query. It is at most the number of batches that had begun when the
// query ended. KVCAST_ANSWERS sets the number of answers (default: 200,000).
//
// The batches of a worker are a cycle: the last batch clears the worker. NaiveWorker computes the
// true answers after each batch of the cycle.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/router/index/naive_index.h"
#include "tests/support/index_events.h"
#include "tests/support/setting.h"

namespace kvcast::testing {
namespace {

constexpr size_t kCycle = 64;  // batches, with the clear
constexpr uint64_t kHistoryPrompts = 6;
constexpr int64_t kHistoryBlocks = 40;  // of a prompt
constexpr int64_t kHistoryTokens = kHistoryBlocks * 16 + 1;

std::vector<BlockHash> PromptOf(uint64_t prompt) {
  return Hashes(1 + prompt * 1000, kHistoryBlocks);
}

// The batches of one worker, and its true answers.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    model_.groups = {Full(), Window(64)};
    AddState();
    while (batches_.size() + 1 < kCycle) {
      batches_.push_back(Next());
      AddState();
    }
    batches_.push_back(Batch(AllBlocksCleared()));
  }
  const std::vector<GroupSpec>& groups() const { return model_.groups; }
  const EventBatch& batch(uint64_t number) const { return batches_[number % kCycle]; }
  int64_t Tokens(uint64_t state, uint64_t prompt) const { return answers_[state % kCycle][prompt]; }
  // True: `tokens` is the answer after `first` batches, or after one more, ..., or after `last`.
  bool IsTrue(int64_t tokens, uint64_t prompt, uint64_t first, uint64_t last) const {
    for (uint64_t state = first; state <= last; ++state) {
      if (Tokens(state, prompt) == tokens) return true;
    }
    return false;
  }

 private:
  EventBatch Next() {
    EventBatch batch;
    for (uint64_t event = 1 + random_() % 8; event > 0; --event) {
      const uint64_t prompt = random_() % kHistoryPrompts;
      const int64_t group = random_() % 2 == 0 ? 1 : 0;
      const bool stores = random_() % 4 != 0;
      const auto begin = random_() % 3 == 0 ? random_() % kHistoryBlocks : 0;
      const auto end = begin + 1 + random_() % (kHistoryBlocks - begin);
      std::vector<BlockHash> part;
      for (uint64_t block = begin; block < end; ++block) {
        const uint64_t hash = 1 + prompt * 1000 + block;
        if (model_.Holds(group, hash) == stores) continue;
        part.push_back(BlockHash::FromUnsigned(hash));
        if (stores) {
          model_.Store(0, group, hash);
        } else {
          model_.Remove(0, group, hash);
        }
      }
      if (part.empty()) continue;
      if (stores) {
        batch.events.emplace_back(group == 0 ? StoreFull(part, 0) : StoreWindow(part, 1, 64));
      } else {
        batch.events.emplace_back(Remove(part, group));
      }
    }
    return batch;
  }
  void AddState() {
    auto& answers = answers_.emplace_back();
    for (uint64_t prompt = 0; prompt < kHistoryPrompts; ++prompt) {
      std::vector<uint64_t> chain;
      for (const BlockHash& hash : PromptOf(prompt)) chain.push_back(hash.integer());
      answers[prompt] = model_.Match(chain, kHistoryTokens);
    }
  }

  std::mt19937_64 random_;
  NaiveWorker model_;
  std::vector<EventBatch> batches_;
  std::vector<std::array<int64_t, kHistoryPrompts>> answers_;  // by state
};

// A worker, and the progress of its writer.
struct Followed {
  explicit Followed(uint64_t seed) : history(seed) {}
  const History history;
  std::atomic<uint64_t> begun = 0;  // batches whose Apply was called
  std::atomic<uint64_t> done = 0;   // batches whose Apply has returned
};

class AnswerHistoryTest : public ::testing::TestWithParam<size_t> {};  // number of shards

INSTANTIATE_TEST_SUITE_P(Shards, AnswerHistoryTest, ::testing::Values(1, 2));

TEST_P(AnswerHistoryTest, EachAnswerIsTrueForAStateOfItsWorker) {
  const auto wanted = static_cast<uint64_t>(testing::Setting("KVCAST_ANSWERS", 200'000));
  PrefixIndex index(ContentKeys::OfProcess(), GetParam());
  std::array<Followed, 2> workers{Followed(1), Followed(2)};
  for (uint32_t w = 0; w < workers.size(); ++w) {
    ASSERT_TRUE(index.AddWorker(WorkerId(w), Registered(workers[w].history.groups())).ok());
  }
  std::atomic<uint64_t> checked = 0;
  std::atomic<uint64_t> beside_a_batch = 0;
  std::atomic<uint64_t> wrong = 0;
  std::vector<std::jthread> threads;
  for (uint32_t w = 0; w < workers.size(); ++w) {
    threads.emplace_back([&, w] {
      Followed& worker = workers[w];
      for (uint64_t number = 0; checked < wanted; ++number) {
        worker.begun = number + 1;
        index.Apply(WorkerId(w), worker.history.batch(number));
        worker.done = number + 1;
      }
    });
    threads.emplace_back([&, w] {
      for (uint64_t query = w; checked < wanted; ++query) {
        const uint64_t prompt = query % kHistoryPrompts;
        const std::array first{workers[0].done.load(), workers[1].done.load()};
        const auto matches = index.Match(PromptOf(prompt), 16, kHistoryTokens);
        const std::array last{workers[0].begun.load(), workers[1].begun.load()};
        for (const WorkerMatch& match : matches) {
          const uint32_t id = match.worker.value;
          if (last[id] - first[id] >= kCycle) continue;  // any state is possible
          ++checked;
          beside_a_batch += last[id] > first[id];
          wrong += !workers[id].history.IsTrue(match.gpu_tokens, prompt, first[id], last[id]);
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(beside_a_batch, checked / 1000);
  std::printf("[  figure  ] C5: %lu answers, %lu beside a batch, %lu wrong\n", checked.load(),
              beside_a_batch.load(), wrong.load());
}

TEST(AnswerHistory, TheStatesOfACycleHaveDifferentAnswers) {
  const History history(1);
  std::set<std::vector<int64_t>> different;
  for (uint64_t state = 0; state < kCycle; ++state) {
    std::vector<int64_t> answers;
    for (uint64_t prompt = 0; prompt < kHistoryPrompts; ++prompt) {
      answers.push_back(history.Tokens(state, prompt));
    }
    different.insert(answers);
  }
  EXPECT_GT(different.size(), kCycle / 2);
}

}  // namespace
}  // namespace kvcast::testing
