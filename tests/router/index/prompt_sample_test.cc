// A worker's sample of prompts: the share of stores it follows, its bounds, and the repeats and
// removals that it notes.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/prompt_sample.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace kvcast::router {
namespace {

using Generation = PromptSample::Generation;

constexpr int64_t kBlock = 16;  // the hash unit too

// The content key of a prompt's block. Block 0 of each prompt has a key of its own.
ContentKey KeyOf(uint64_t prompt, uint64_t block) { return (prompt + 1) << 32 | (block + 1); }

class PromptSampleTest : public ::testing::Test {
 protected:
  // A store of blocks [first, first + count) of a prompt.
  void Store(uint64_t prompt, size_t first, size_t count, uint8_t group = 0) {
    BlockStored event = {.block_size = kBlock};
    event.block_hashes.assign(count, BlockHash(uint64_t{0}));
    StoreContent content = {.dense = true};
    for (size_t i = 0; i < count; ++i) content.contents.push_back(KeyOf(prompt, first + i));
    const SpanStart start = {.at_root = first == 0,
                             .parent = first == 0 ? kUnnamed : KeyOf(prompt, first - 1),
                             .end = static_cast<uint32_t>(first * kBlock)};
    sample_.NoteStore({.event = event,
                       .start = start,
                       .content = content,
                       .group = group,
                       .held = held_,
                       .unit = kBlock,
                       .lookahead = 0},
                      ContentKeys::OfProcess());
  }
  // Blocks that are not followed, so that `prefixes` more may be. The first prompt begins the
  // sample.
  void Pay(size_t prefixes) {
    Store(held_prompt_, 0, 1);
    held_prompt_ += 1;
    Store(held_prompt_, 1, prefixes * PromptSample::kBlocksACredit);
  }
  const Generation& present() const { return sample_.generations()[1]; }
  const Generation& old() const { return sample_.generations()[0]; }

  PromptSample sample_;
  uint64_t held_ = 0;
  uint64_t held_prompt_ = 1'000'000;
};

TEST_F(PromptSampleTest, FollowsAPromptOverItsStores) {
  Store(1, 0, 4);
  Store(1, 4, 2);
  ASSERT_EQ(present().nodes.size(), 6u);
  EXPECT_EQ(present().nodes[5].end, 6 * kBlock);
  EXPECT_EQ(present().nodes[5].parent, 4);
  EXPECT_EQ(present().nodes[5].child, PromptSample::kRoot);
  EXPECT_EQ(present().nodes[5].cut, 0u);
  EXPECT_EQ(present().Find(KeyOf(1, 3)), 3);
  EXPECT_EQ(present().Find(KeyOf(2, 3)), PromptSample::kRoot);
}

TEST_F(PromptSampleTest, ASecondStoreOfAGroupIsARepeat) {
  Store(1, 0, 3, 0);
  Store(1, 0, 3, 1);
  for (const auto& node : present().nodes) EXPECT_EQ(node.repeated, 0u);
  Store(1, 0, 2, 1);
  EXPECT_EQ(present().nodes[1].repeated, 1u);
  EXPECT_EQ(present().nodes[2].repeated, 0u);
}

TEST_F(PromptSampleTest, NotesWhichGroupsRemoveWhat) {
  Store(1, 0, 3);
  sample_.NoteRemoved(KeyOf(1, 1), 5);
  sample_.NoteRemoved(KeyOf(1, 1), 31);
  sample_.NoteRemoved(KeyOf(1, 1), 32);
  sample_.NoteRemoved(KeyOf(7, 1), 5);
  EXPECT_EQ(present().nodes[1].removed, 1u << 5 | 1u << 31);
  EXPECT_EQ(present().nodes[0].removed, 0u);
}

TEST_F(PromptSampleTest, GroupsBeyondTheBoundAreNotFollowed) {
  Store(1, 0, 3, PromptSample::kMaxGroups);
  EXPECT_TRUE(present().nodes.empty());
}

TEST_F(PromptSampleTest, MostStoresArePassedOver) {
  for (uint64_t prompt = 0; prompt < 4096; ++prompt) Store(prompt, 0, 16);
  const size_t paid = PromptSample::kFirstCredits + 4096 * 16 / PromptSample::kBlocksACredit;
  const size_t followed = present().nodes.size() + old().nodes.size();
  EXPECT_GE(followed, paid - 16);
  EXPECT_LE(followed, paid + 16);
}

TEST_F(PromptSampleTest, APromptLongerThanAGenerationIsFollowedAsFarAsThereIsRoom) {
  Pay(2 * PromptSample::kMinNodes);
  Store(1, 0, PromptSample::kMinNodes + 10);
  ASSERT_EQ(present().nodes.size(), PromptSample::kMinNodes);
  EXPECT_EQ(present().nodes.back().cut, 1u);
  EXPECT_EQ(present().Find(KeyOf(1, PromptSample::kMinNodes - 1)), PromptSample::kMinNodes - 1);
  EXPECT_EQ(present().Find(KeyOf(1, PromptSample::kMinNodes)), PromptSample::kRoot);
}

TEST_F(PromptSampleTest, AFullGenerationBecomesTheOldOne) {
  Pay(3 * PromptSample::kMinNodes);
  Store(1, 0, PromptSample::kMinNodes - 1);
  Store(2, 0, 8);
  ASSERT_EQ(old().nodes.size(), PromptSample::kMinNodes);
  ASSERT_EQ(present().nodes.size(), 8u);
  // What goes on in the old one is not followed.
  Store(1, PromptSample::kMinNodes - 1, 4);
  EXPECT_EQ(old().nodes.back().cut, 1u);
  EXPECT_EQ(present().nodes.size(), 8u);
  sample_.NoteRemoved(KeyOf(1, 0), 2);
  EXPECT_EQ(old().nodes[1].removed, 1u << 2);
}

TEST_F(PromptSampleTest, AGenerationIsAsLargeAsWhatIsHeld) {
  held_ = 2000 * PromptSample::kBlocksANode;
  Store(1, 0, 4);
  EXPECT_EQ(present().max_nodes, 2000u);
  sample_.Clear();
  held_ = uint64_t{1} << 40;
  Store(1, 0, 4);
  EXPECT_EQ(present().max_nodes, PromptSample::kMaxNodes);
  sample_.Clear();
  held_ = 0;
  Store(1, 0, 4);
  EXPECT_EQ(present().max_nodes, PromptSample::kMinNodes);
}

}  // namespace
}  // namespace kvcast::router
