// Scores returns the same lengths as Match, even if the index finds the blocks of a prompt in
// several ways.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kvcast/router/prompt_contents.h"
#include "tests/support/content_events.h"
#include "tests/support/score_check.h"

namespace kvcast::testing {
namespace {

// The index finds blocks 0 to 3 and block 5 by content. The content of block 4 is not known. The
// index finds block 4 by hash, after all blocks that it finds by content.
TEST(Scores, ABlockFoundByHashFillsAGap) {
  PrefixIndex index;
  ASSERT_TRUE(index.AddWorker(kWorker, Registered({Full(4)}, 4)).ok());
  const auto hashes = Hashes(1, 6);
  const auto contents = PromptContents(index.keys(), Tokens(0, 24), 4, 0, {});
  index.Apply(kWorker,
              Batch(StoreTokens(Hashes(1, 4), Tokens(0, 16)), StoreFull(Hashes(5, 2), 0, 4)));
  ASSERT_EQ(index.NameBlocks(kWorker, std::span(hashes).subspan(5), std::span(contents).subspan(5)),
            1u);
  const PromptBlocks prompt = {
      .hash_block_size = 4, .prompt_tokens = 25, .contents = contents, .hashes = hashes};
  const auto matches = index.Match(prompt);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].gpu_tokens, 24);
  ExpectScoresOf(index, prompt, matches);
}

// The worker holds blocks 0 and 1 in slots without content. It holds blocks 2 and 3 in the slots of
// another worker's run. Blocks 4 and 5 are a third stretch.
TEST(Scores, SlotsOfTwoRunsAreOnePrefix) {
  PrefixIndex index;
  const WorkerId other(kWorker.value + 1);
  for (const WorkerId worker : {kWorker, other}) {
    ASSERT_TRUE(index.AddWorker(worker, Registered({Full(4)}, 4)).ok());
  }
  const auto hashes = Hashes(1, 6);
  const auto contents = PromptContents(index.keys(), Tokens(0, 24), 4, 0, {});
  index.Apply(other, Batch(StoreTokens(Hashes(1, 4), Tokens(0, 16))));
  index.Apply(kWorker, Batch(StoreFull(hashes, 0, 4)));
  ASSERT_EQ(
      index.NameBlocks(kWorker, std::span(hashes).subspan(2, 2), std::span(contents).subspan(2, 2)),
      2u);
  const PromptBlocks prompt = {
      .hash_block_size = 4, .prompt_tokens = 25, .contents = {}, .hashes = hashes};
  const auto matches = index.Match(prompt);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].gpu_tokens, 24);
  EXPECT_EQ(matches[1].gpu_tokens, 16);
  ExpectScoresOf(index, prompt, matches);
}

}  // namespace
}  // namespace kvcast::testing
