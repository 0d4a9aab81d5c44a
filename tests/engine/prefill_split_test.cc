// The split ends the chunks of a prefill at the right tokens. The recorded runs check the same rule
// on every allocation (`kvcast conformance engine`).
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/engine/prefill_split.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// Returns the chunk ends of a prompt that is computed alone with `budget` tokens per step.
std::vector<int64_t> Ends(const CacheConfig& config, int64_t prompt, int64_t budget,
                          int64_t shared_prefix = 0, int64_t start = 0) {
  const PrefillSplit split(ValidateCacheConfig(config).value(), budget);
  CacheRequest request = Request("0", Tokens(prompt));
  request.shared_prefix_boundary = shared_prefix;
  std::vector<int64_t> ends;
  while (start < prompt && ends.size() < 100) {
    const int64_t left = prompt - start;
    start += split.ChunkTokens(request, start, left < budget ? left : budget);
    ends.push_back(start);
  }
  return ends;
}

using ChunkEnds = std::vector<int64_t>;

CacheConfig MambaConfig(int64_t hash_block_size) {
  CacheConfig config = Config({Full(64), Mamba(MambaMode::kAlign, 64)}, 100);
  config.hash_block_size = hash_block_size;
  return config;
}

TEST(PrefillSplit, ChunksOfAttentionAloneEndAtTheBudget) {
  const CacheConfig config = Config({Full(16), Window(64, 16)}, 100);
  EXPECT_EQ(Ends(config, 250, 100), (ChunkEnds{100, 200, 250}));
}

TEST(PrefillSplit, AStateIsKeptOnTheGridOfBlocks) {
  EXPECT_EQ(Ends(MambaConfig(64), 250, 100), (ChunkEnds{64, 128, 192, 250}));
}

// A request of 256 tokens hits at most 255 tokens, so the state after 192 tokens is the last useful
// state.
TEST(PrefillSplit, StopsAtTheLastStateThatAReplayCanHit) {
  CacheConfig config = MambaConfig(64);
  EXPECT_EQ(Ends(config, 256, 300), (ChunkEnds{192, 256}));
  config.rules = EngineRules::kMain2026August;
  EXPECT_EQ(Ends(config, 256, 300), (ChunkEnds{256}));
  EXPECT_EQ(Ends(config, 257, 300), (ChunkEnds{256, 257}));
}

TEST(PrefillSplit, StopsAtThePromptsLastHashBoundary) {
  CacheConfig config = MambaConfig(16);
  EXPECT_EQ(Ends(config, 250, 300), (ChunkEnds{192, 240, 250}));
  EXPECT_EQ(Ends(config, 240, 300), (ChunkEnds{192, 224, 240}));
  config.rules = EngineRules::kMain2026August;
  EXPECT_EQ(Ends(config, 240, 300), (ChunkEnds{192, 240}));
}

// If a group drops a hash unit for its draft head, its hits are one hash unit shorter.
TEST(PrefillSplit, ADraftHeadMovesTheStopsDown) {
  CacheConfig config = MambaConfig(16);
  config.groups[0].eagle = true;
  EXPECT_EQ(Ends(config, 250, 300), (ChunkEnds{128, 224, 250}));
}

// The hash of a block needs the tokens after the block.
TEST(PrefillSplit, LookaheadMovesTheStopsDown) {
  CacheConfig config = MambaConfig(16);
  config.chain_form.lookahead = 3;
  EXPECT_EQ(Ends(config, 242, 300), (ChunkEnds{192, 224, 242}));
  EXPECT_EQ(Ends(config, 243, 300), (ChunkEnds{192, 240, 243}));
}

TEST(PrefillSplit, StopsAtTheEndOfASharedPrefix) {
  CacheConfig config = MambaConfig(16);
  EXPECT_EQ(Ends(config, 450, 500, 150), (ChunkEnds{128, 448, 450}));
  config.groups[0].eagle = true;
  config.mamba_shared_prefix_checkpoint = true;
  EXPECT_EQ(Ends(config, 450, 500, 160), (ChunkEnds{128, 160, 192, 384, 432, 448, 450}));
}

TEST(PrefillSplit, ABlockWiderThanAnyChunkIsFilledBySeveral) {
  EXPECT_EQ(Ends(MambaConfig(64), 130, 40), (ChunkEnds{40, 64, 104, 128, 130}));
}

// If the budget of a step does not reach the next stop, the request waits.
TEST(PrefillSplit, AChunkThatReachesNoStateIsDelayed) {
  const PrefillSplit split(ValidateCacheConfig(MambaConfig(64)).value(), 128);
  const CacheRequest request = Request("0", Tokens(250));
  EXPECT_EQ(split.ChunkTokens(request, 0, 40), 0);
  EXPECT_EQ(split.ChunkTokens(request, 0, 80), 64);
}

// A chunk that keeps a checkpoint inside needs no stop for this checkpoint.
TEST(PrefillSplit, ACheckpointInsideTheLastChunkNeedsNoStop) {
  CacheConfig config = MambaConfig(16);
  config.groups[1].prefill_checkpoint_blocks = 1;
  config.groups[1].prefill_checkpoint_alignment = 16;
  EXPECT_EQ(Ends(config, 250, 300), (ChunkEnds{250}));
}

// A decode is not a prefill. The last token of a resumed request is not a prefill either.
TEST(PrefillSplit, DecodesAreNotSplit) {
  const PrefillSplit split(ValidateCacheConfig(MambaConfig(64)).value(), 128);
  CacheRequest request = Request("0", Tokens(100));
  request.prompt_tokens = 60;
  EXPECT_EQ(split.ChunkTokens(request, 99, 1), 1);
  EXPECT_EQ(split.ChunkTokens(request, 0, 100), 64);
}

// A drafter of three modules reads the three tokens after a chunk. The prompt must contain these
// tokens, or the chunk must end the prompt.
TEST(PrefillSplit, LeavesTheTokensThatADrafterOfSeveralModulesReads) {
  CacheConfig config = Config({Full(16)}, 100);
  config.mtp_lookahead_tokens = 3;
  EXPECT_EQ(Ends(config, 102, 100), (ChunkEnds{99, 102}));
  EXPECT_EQ(Ends(config, 103, 100), (ChunkEnds{100, 103}));
}

}  // namespace
}  // namespace kvcast::engine
