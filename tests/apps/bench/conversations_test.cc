// The batches of the growing fleet store and evict the prompts that Conversations defines.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/conversations.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <variant>

#include "apps/bench/growth/conversation_batches.h"

namespace kvcast::bench {
namespace {

// The blocks that each worker holds after the events, without the system prompts.
class Holders {
 public:
  explicit Holders(uint64_t workers) : content_(workers), batches_(content_) {}

  void Store(uint64_t wave) {
    for (uint64_t step = 0; step < content_.steps(); ++step) {
      Take(batches_.Store(wave, step));
    }
  }
  void Evict(uint64_t wave) {
    for (uint64_t step = 0; step < content_.steps(); ++step) {
      Take(batches_.Evict(wave, step));
    }
  }
  // Whether the worker of the conversation holds the conversation's whole prompt.
  bool HoldsPrompt(uint64_t conversation) {
    const auto& held = held_[content_.WorkerOf(conversation).value];
    for (uint64_t i = Conversations::kSystemBlocks; i < Conversations::kPromptBlocks; ++i) {
      if (!held.contains(content_.HashOf(conversation, i))) return false;
    }
    return true;
  }
  uint64_t size() const {
    uint64_t blocks = 0;
    for (const auto& [worker, held] : held_) blocks += held.size();
    return blocks;
  }
  const Conversations& content() const { return content_; }

 private:
  void Take(const WorkerBatch& batch) {
    auto& held = held_[batch.worker.value];
    for (const Event& event : batch.batch.events) {
      if (const auto* stored = std::get_if<BlockStored>(&event)) return TakeStore(*stored, held);
      for (const BlockHash& hash : std::get<BlockRemoved>(event).block_hashes) {
        ASSERT_EQ(held.erase(hash.integer()), 1u);
      }
    }
  }
  void TakeStore(const BlockStored& stored, std::set<uint64_t>& held) {
    const uint64_t parent = stored.parent_block_hash->integer();
    ASSERT_TRUE(held.contains(parent) || systems_.contains(parent));
    ASSERT_EQ(stored.token_ids->size(), stored.block_hashes.size() * kBlockTokens);
    for (const BlockHash& hash : stored.block_hashes) {
      ASSERT_TRUE(held.insert(hash.integer()).second);
    }
  }
  static std::set<uint64_t> Systems() {
    std::set<uint64_t> last;
    for (uint64_t system = 0; system < Conversations::kSystems; ++system) {
      last.insert(Conversations::SystemHash(system, Conversations::kSystemBlocks - 1));
    }
    return last;
  }

  const Conversations content_;
  ConversationBatches batches_;
  const std::set<uint64_t> systems_ = Systems();  // the last block of each system prompt
  std::map<uint32_t, std::set<uint64_t>> held_;
};

class ConversationsTest : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Workers, ConversationsTest, ::testing::Values(2, 3, 8));

TEST_P(ConversationsTest, AWaveHoldsWholePromptsAndIsEvictedWhole) {
  Holders holders(GetParam());
  const Conversations& content = holders.content();
  holders.Store(0);
  EXPECT_EQ(holders.size(), content.wave_residencies());
  holders.Store(1);
  EXPECT_EQ(holders.size(), 2 * content.wave_residencies());
  for (uint64_t conversation = 0; conversation < 2 * content.conversations(); ++conversation) {
    ASSERT_TRUE(holders.HoldsPrompt(conversation)) << conversation;
  }
  holders.Evict(0);
  EXPECT_EQ(holders.size(), content.wave_residencies());
  EXPECT_TRUE(holders.HoldsPrompt(content.conversations()));
}

TEST_P(ConversationsTest, ConversationsOfAProjectShareItsText) {
  const Conversations content(GetParam());
  std::map<uint64_t, std::set<uint32_t>> workers;    // by project
  std::map<uint64_t, std::set<uint64_t>> text_ends;  // by project
  std::set<uint64_t> last_blocks;
  for (uint64_t i = 0; i < 3 * content.conversations(); ++i) {
    const uint64_t project = content.ProjectOf(i);
    workers[project].insert(content.WorkerOf(i).value);
    text_ends[project].insert(content.HashOf(i, Conversations::kSharedBlocks - 1));
    EXPECT_TRUE(last_blocks.insert(content.HashOf(i, Conversations::kPromptBlocks - 1)).second);
    EXPECT_EQ(content.HashOf(i, 0), Conversations::SystemHash(content.SystemOf(project), 0));
  }
  ASSERT_EQ(workers.size(), 3 * content.workers());
  for (const auto& [project, of_project] : workers) {
    EXPECT_EQ(of_project.size(), Conversations::kHolders) << project;
    EXPECT_EQ(text_ends[project].size(), 1u) << project;
  }
}

}  // namespace
}  // namespace kvcast::bench
