// While a request runs, the manager releases the blocks that attention does not read any more.
// SPDX-License-Identifier: Apache-2.0
#include "src/engine/full_attention_manager.h"
#include "src/engine/single_type_manager.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr RequestSlot kOnlySlot{0};

size_t LeadingNulls(std::span<const BlockId> table) {
  size_t nulls = 0;
  while (nulls < table.size() && table[nulls] == kNullBlock) ++nulls;
  return nulls;
}

// A manager with a table of 11 blocks, ids 1 to 11.
template <typename Manager>
class TableOf11 {
 public:
  explicit TableOf11(const GroupSpec& spec) : pool_(Pool(50, spec.block_size)) {
    GroupContext context;
    context.spec = spec;
    context.alignment = spec.block_size;
    context.pool = &pool_;
    manager_ = std::make_unique<Manager>(context);
    std::vector<BlockId> added;
    manager_->AllocateNew(kOnlySlot, {.tokens = 11 * spec.block_size}, added);
  }
  Ids Release(int64_t processed, int64_t prompt = 0) {
    manager_->RemoveSkipped(kOnlySlot, processed, prompt);
    return ToIds(manager_->table(kOnlySlot));
  }
  size_t NullsAfter(int64_t processed) {
    Release(processed);
    return LeadingNulls(manager_->table(kOnlySlot));
  }
  BlockPool& pool() { return pool_; }

 private:
  BlockPool pool_;
  std::unique_ptr<Manager> manager_;
};

// SWA, block size 2, window 4. Leading null blocks of the table, by processed tokens: none at 0 and
// 4 tokens, 1 at 5 and 6, 2 at 7, 4 at 11. At 11 tokens two blocks are freed, the later block
// first.
TEST(BlockRelease, AWindowReleasesTheWholeBlocksBeforeIt) {
  TableOf11<SingleTypeManager> table(Window(4, 2));
  EXPECT_EQ(table.NullsAfter(0), 0u);
  EXPECT_EQ(table.NullsAfter(4), 0u);
  EXPECT_EQ(table.NullsAfter(5), 1u);
  EXPECT_EQ(table.NullsAfter(6), 1u);
  EXPECT_EQ(table.NullsAfter(7), 2u);
  EXPECT_EQ(table.NullsAfter(11), 4u);
  const Ids free = ToIds(table.pool().FreeList());
  EXPECT_EQ((Ids{free[0], free[1]}), (Ids{4, 3})) << "the later block is released first";
}

// Chunked attention, block size 2, chunk 4. Leading null blocks of the table, by processed tokens:
// none at 0 tokens, 2 at 4 and 6, 6 at 12.
TEST(BlockRelease, ChunkedReleasesThePassedChunk) {
  TableOf11<SingleTypeManager> table(Chunked(4, 2));
  EXPECT_EQ(table.NullsAfter(0), 0u);
  EXPECT_EQ(table.NullsAfter(4), 2u);
  EXPECT_EQ(table.NullsAfter(6), 2u);
  EXPECT_EQ(table.NullsAfter(12), 6u);
}

TEST(BlockRelease, FullAttentionReleasesNothing) {
  TableOf11<FullAttentionManager> table(Full(2));
  EXPECT_EQ(table.NullsAfter(22), 0u);
}

// Reference window, block size 4, window 8, prompt 16. If the manager does not get the prompt
// length, no entry of the table is null. With the prompt length, entry 4 is null at 28 tokens, and
// entries 4, 5 and 6 at 36 tokens.
TEST(BlockRelease, ReferenceWindowReleasesTheGapBetweenPromptAndWindow) {
  GroupSpec spec = Full(4);
  spec.reference_window = 8;
  TableOf11<FullAttentionManager> table(spec);
  EXPECT_EQ(table.Release(28), (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(table.Release(20, 16), (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(table.Release(28, 16), (Ids{1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(table.Release(36, 16), (Ids{1, 2, 3, 4, 0, 0, 0, 8, 9, 10, 11}));
}

// SWA, window 16, prompt of 100 tokens, synchronous scheduling. The first decode step frees 5
// blocks.
TEST(BlockRelease, HappensAtTheFirstDecodeStep) {
  TestEngine engine(Config({Window(16)}, 50));
  CacheRequest request = Request("0", Tokens(100));
  engine.Start(request);
  EXPECT_EQ(LeadingNulls(engine.cache().BlockTable(request, GroupIdx(0))), 0u);
  engine.Decode(request, 7);
  EXPECT_EQ(LeadingNulls(engine.cache().BlockTable(request, GroupIdx(0))), 5u);
}

// SWA, window 16, prompt of 100 tokens, asynchronous scheduling. The second schedule, before the
// first output, frees no block. The schedule after the output leaves 5 null blocks.
TEST(BlockRelease, WaitsForTokensInFlight) {
  TestEngine engine(Config({Window(16)}, 50));
  CacheRequest request = Request("0", Tokens(100));
  engine.Start(request);
  ASSERT_TRUE(
      engine.Allocate(request, {.computed_tokens = 100, .new_tokens = 1, .in_flight_tokens = 100}));
  EXPECT_EQ(LeadingNulls(engine.cache().BlockTable(request, GroupIdx(0))), 0u);
  ASSERT_TRUE(
      engine.Allocate(request, {.computed_tokens = 101, .new_tokens = 1, .in_flight_tokens = 1}));
  EXPECT_EQ(LeadingNulls(engine.cache().BlockTable(request, GroupIdx(0))), 5u);
}

// A freed SWA request has cached blocks and blocks without a key (scratch blocks). The pool takes
// every scratch block before every cached block, and the cached blocks still hit.
TEST(BlockRelease, CachedBlocksOfAWindowAreTakenAfterScratchOnes) {
  CacheConfig config = Config({Window(16)}, 20);
  config.retention_interval = 64;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(256));
  engine.Start(request);
  ASSERT_EQ(CachedPositions(engine.cache(), request, GroupIdx(0)), (Ids{3, 7, 11, 14, 15}));
  engine.Free(request);
  CacheRequest scratch = Request("1", Tokens(14 * 16, 9000));
  engine.StartWithoutLookup(scratch);
  EXPECT_EQ(engine.cache().CachedKeys(GroupIdx(0)).size(), 5u + 4u)
      << "14 uncached blocks were free";
  CacheRequest replay = Request("2", Tokens(256));
  EXPECT_EQ(engine.Lookup(replay).tokens, 240);
}

}  // namespace
}  // namespace kvcast::engine
