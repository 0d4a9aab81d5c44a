// A lookup of one window, chunked or Mamba group finds the longest usable hit. Blocks have 2
// tokens. Window and chunk have 4 tokens unless a test names another size. T: the block is cached.
// F: the block is not cached.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/group_lookup.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

struct Hit {
  int64_t blocks;
  Ids table;
};

// Looks up a prompt whose blocks are cached according to `cached`. `tail` tokens follow the last
// block. `blocks_before` other blocks precede the blocks of `cached`.
Hit LookUp(const GroupSpec& spec, const std::string& cached, int64_t tail = 0,
           int64_t blocks_before = 0) {
  const auto blocks = static_cast<int64_t>(cached.size());
  const CacheRequest request = HashedRequest(blocks * 2, 2);
  BlockPool pool(Pool(100, 2));
  std::vector<BlockId> table;
  pool.Allocate(blocks, table);
  Bitmap keep(blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    if (cached[static_cast<size_t>(i)] == 'T') keep.Set(i);
  }
  pool.CacheFullBlocks({request, GroupIdx(0), 2, table, 0, blocks, &keep});
  GroupLookup lookup({spec, {0}}, pool, 2);
  lookup.Begin(request.chain, blocks_before * 2);
  const int64_t hit = lookup.LongestHit(blocks * 2 + tail, false);
  std::vector<std::vector<BlockId>> tables(1);
  lookup.FillTables(hit, tables);
  EXPECT_EQ(static_cast<int64_t>(tables[0].size()), hit / 2);
  return {hit / 2, ToIds(tables[0])};
}

int64_t WindowHit(const std::string& cached) { return LookUp(Window(4, 2), cached).blocks; }
int64_t ChunkedHit(const std::string& cached, int64_t tail) {
  return LookUp(Chunked(4, 2), cached, tail).blocks;
}

// Sliding window. A hit needs two cached blocks before its end, or all blocks from the start.
TEST(WindowLookup, NeedsTwoCachedBlocksInARowOrTheStart) {
  EXPECT_EQ(WindowHit(""), 0);
  EXPECT_EQ(WindowHit("T"), 1);
  EXPECT_EQ(WindowHit("TF"), 1);
  EXPECT_EQ(WindowHit("TT"), 2);
  EXPECT_EQ(WindowHit("TTF"), 2);
  EXPECT_EQ(WindowHit("TTT"), 3);
  EXPECT_EQ(WindowHit("TTTF"), 3);
}

// Sliding window. The blocks before the run that serves the hit are null blocks.
TEST(WindowLookup, TakesTheLastRunThatIsLongEnough) {
  const Hit hit = LookUp(Window(4, 2), "TTFTFFTTFTTT");
  EXPECT_EQ(hit.blocks, 12);
  EXPECT_EQ(hit.table, (Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 12}));
  EXPECT_EQ(WindowHit("TTFTFFTTFFF"), 8);
  EXPECT_EQ(WindowHit("TTFTFFTTFFFT"), 8);
}

TEST(WindowLookup, FindsARunFarToTheLeft) {
  std::string cached(90, 'F');
  cached[3] = cached[4] = 'T';
  EXPECT_EQ(WindowHit(cached), 5);
}

// Chunked attention. A hit needs cached blocks only in the chunk where the prompt ends.
TEST(ChunkedLookup, NeedsTheBlocksOfTheCurrentChunk) {
  for (const int64_t tail : {0, 1}) {
    EXPECT_EQ(ChunkedHit("T", tail), 1);
    EXPECT_EQ(ChunkedHit("TF", tail), 2);
    EXPECT_EQ(ChunkedHit("TT", tail), 2);
    EXPECT_EQ(ChunkedHit("TTF", tail), 2);
    EXPECT_EQ(ChunkedHit("TTT", tail), 3);
    EXPECT_EQ(ChunkedHit("TTTF", tail), 4);
  }
}

TEST(ChunkedLookup, CountsChunksFromTheStartOfThePrompt) {
  const auto hit = [](const std::string& cached) { return LookUp(Chunked(4, 2), cached, 0, 3); };
  // The first block ends a chunk that begins before this block.
  EXPECT_EQ(hit("F").blocks, 1);
  EXPECT_EQ(hit("FF").blocks, 1);
  EXPECT_EQ(hit("FT").blocks, 2);
  EXPECT_EQ(hit("FFF").blocks, 3);
  EXPECT_EQ(hit("FTT").table, (Ids{0, 0, 0}));
  EXPECT_EQ(hit("FT").table, (Ids{0, 2}));
  // If a hit ends in the chunk where the blocks begin, it needs only blocks after the start.
  EXPECT_EQ(LookUp(Chunked(8, 2), "TTF", 0, 1).blocks, 3);
  EXPECT_EQ(LookUp(Chunked(8, 2), "TFT", 0, 1).blocks, 3);
  EXPECT_EQ(LookUp(Chunked(8, 2), "TF", 0, 1).blocks, 1);
  EXPECT_EQ(LookUp(Chunked(8, 2), "TT", 0, 1).table, (Ids{1, 2}));
}

// Chunked attention. With 9 blocks and tail 1, the chunk where the prompt ends begins at the ninth
// block. With 10 blocks, this chunk begins after the last block.
TEST(ChunkedLookup, BlocksBeforeTheChunkCountAsPresent) {
  EXPECT_EQ(ChunkedHit("TFFTFTFFT", 1), 9);
  EXPECT_EQ(ChunkedHit("TFFTFTFFF", 1), 8);
  for (const int64_t tail : {0, 1}) {
    EXPECT_EQ(ChunkedHit("FTTFTFTFTT", tail), 10);
    EXPECT_EQ(ChunkedHit("FTTFTFTFTF", tail), 10);
    EXPECT_EQ(ChunkedHit("FTTFTFTFFT", tail), 10);
    EXPECT_EQ(ChunkedHit("FTTFTFTFFF", tail), 10);
  }
  EXPECT_EQ(LookUp(Chunked(4, 2), "TFFTT", 1).table, (Ids{0, 0, 0, 0, 5}));
}

TEST(MambaLookup, NeedsOneStateAndTakesTheDeepest) {
  const Hit hit = LookUp(Mamba(MambaMode::kAll, 2), "TFTFF");
  EXPECT_EQ(hit.blocks, 3);
  EXPECT_EQ(hit.table, (Ids{0, 0, 3}));
  EXPECT_EQ(LookUp(Mamba(MambaMode::kAll, 2), "FFF").blocks, 0);
}

}  // namespace
}  // namespace kvcast::engine
