// A restored index gives the answers of the saved index. A damaged image is refused.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "router/index/run_image.h"
#include "src/base/byte_fields.h"
#include "src/stream_sim/saved_index.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

constexpr WorkerId kOther{8};

BlockStored Kind(BlockStored event, const char* kind, std::optional<int64_t> window = {}) {
  event.kv_cache_spec_kind = kind;
  event.kv_cache_spec_sliding_window = window;
  return event;
}

// Two workers that share blocks. The index learns the groups of the first worker. All indexes of a
// test use the same keys.
class IndexImageTest : public ::testing::Test {
 protected:
  IndexImageTest() { Register(index_); }

  static void Register(PrefixIndex& index, bool digests = true, bool refreshes = false) {
    WorkerConfig learns;
    learns.name = "learns";
    learns.digests = digests;
    learns.repeats_are_refreshes = refreshes;
    EXPECT_TRUE(index.AddWorker(kWorker, learns).ok());
    WorkerConfig registered;
    registered.name = "registered";
    registered.groups = {{.kind = SpecKind::kFullAttention, .block_size = 4}};
    registered.digests = digests;
    EXPECT_TRUE(index.AddWorker(kOther, registered).ok());
  }
  // A full group and a window group. The worker has evicted the first blocks of the window.
  void StoreHybrid() {
    index_.Apply(kWorker, Batch(Kind(StoreTokens(Hashes(1, 100), Tokens(5, 400)), "full_attention"),
                                Kind(StoreTokens(Hashes(1, 100), Tokens(5, 400), std::nullopt, 1),
                                     "sliding_window", 12)));
    index_.Apply(kWorker, Batch(Remove(Hashes(1, 90), 1)));
    index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 40), Tokens(5, 160))));
  }
  sim::SavedIndex Save() const { return {index_, {kOther, kWorker}}; }
  static std::vector<WorkerMatch> Answers(const PrefixIndex& index, int64_t tokens) {
    const std::vector<TokenId> prompt = Tokens(5, tokens);
    const auto contents = PromptContents(index.keys(), prompt, 4, 0, {});
    return index.Match({.hash_block_size = 4,
                        .prompt_tokens = tokens,
                        .contents = contents,
                        .hashes = {},
                        .integer_hashes = {}});
  }
  static void ExpectEqualAnswers(const PrefixIndex& a, const PrefixIndex& b, int64_t tokens) {
    const auto first = Answers(a, tokens);
    const auto second = Answers(b, tokens);
    ASSERT_EQ(first.size(), second.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].worker, second[i].worker);
      EXPECT_EQ(first[i].gpu_tokens, second[i].gpu_tokens);
      EXPECT_EQ(first[i].with_cpu_tokens, second[i].with_cpu_tokens);
      EXPECT_EQ(first[i].certain, second[i].certain);
      EXPECT_EQ(first[i].ambiguous, second[i].ambiguous);
      EXPECT_EQ(first[i].unknown, second[i].unknown);
      EXPECT_EQ(first[i].unnamed_gpu, second[i].unnamed_gpu);
    }
  }
  void ExpectRestored(size_t shards = 1) {
    const sim::SavedIndex saved = Save();
    PrefixIndex restored(keys_, shards);
    Register(restored);
    for (const WorkerId id : {kWorker, kOther}) {
      const Status status = saved.Restore(restored, id);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(restored.Digests(id), index_.Digests(id));
      EXPECT_EQ(restored.Groups(id), index_.Groups(id));
      EXPECT_EQ(restored.hash_block_size(id), index_.hash_block_size(id));
      EXPECT_EQ(restored.counters(id).unnamed, index_.counters(id).unnamed);
    }
    for (int64_t tokens = 1; tokens < 420; tokens += 3) {
      ExpectEqualAnswers(index_, restored, tokens);
    }
  }

  const ContentKeys keys_{1};
  PrefixIndex index_{keys_};
};

TEST_F(IndexImageTest, AHybridWorkerIsRestored) {
  StoreHybrid();
  ASSERT_EQ(Answers(index_, 401).at(0).gpu_tokens, 400);
  ExpectRestored();
  ExpectRestored(/*shards=*/3);
}

TEST_F(IndexImageTest, AnEmptyIndexIsRestored) { ExpectRestored(); }

TEST_F(IndexImageTest, AConflictIsRestored) {
  StoreHybrid();
  index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 40), Tokens(5, 160), std::nullopt, 1)));
  ASSERT_EQ(Answers(index_, 401).at(1).unknown, static_cast<uint32_t>(UnknownProperty::kConflict));
  ExpectRestored();
}

// The digests count the copies that the index holds. The restored index has the same copies.
TEST_F(IndexImageTest, AWorkerWhoseRepeatsAreRefreshesIsRestored) {
  PrefixIndex index(keys_);
  Register(index, /*digests=*/true, /*refreshes=*/true);
  const EventBatch store = Batch(StoreTokens(Hashes(1, 40), Tokens(5, 160)));
  index.Apply(kWorker, store);
  const ResidencyTotals once = index.Digests(kWorker);
  index.Apply(kWorker, store);
  EXPECT_EQ(index.Digests(kWorker), once);
  const sim::SavedIndex saved(index, {kWorker});
  PrefixIndex restored(keys_);
  Register(restored, /*digests=*/true, /*refreshes=*/true);
  const Status status = saved.Restore(restored, kWorker);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(restored.Digests(kWorker), once);
  restored.Apply(kWorker, Batch(Remove(Hashes(1, 40))));
  EXPECT_TRUE(restored.Digests(kWorker).empty());
}

TEST_F(IndexImageTest, CopiesAreRestored) {
  StoreHybrid();
  StoreHybrid();
  ExpectRestored();
  const sim::SavedIndex saved = Save();
  PrefixIndex restored(keys_);
  Register(restored);
  ASSERT_TRUE(saved.Restore(restored, kOther).ok());
  restored.Apply(kOther, Batch(Remove(Hashes(1, 40))));
  EXPECT_EQ(restored.counters(kOther).residencies, 40u) << "one copy of two was removed";
  restored.Apply(kOther, Batch(Remove(Hashes(1, 40))));
  EXPECT_EQ(restored.counters(kOther).residencies, 0u);
}

TEST_F(IndexImageTest, AllFormsOfHashesAndTiersAreRestored) {
  const std::vector<uint8_t> digest(32, 0xab);
  const std::vector<uint8_t> longer(40, 0xcd);
  index_.Apply(kOther, Batch(StoreTokens({BlockHash::FromSigned(-5)}, Tokens(5, 4)),
                             StoreTokens({BlockHash::FromBytes(digest)}, Tokens(50, 4)),
                             StoreTokens({BlockHash::FromBytes(longer)}, Tokens(90, 4))));
  BlockStored on_cpu = StoreTokens(Hashes(70, 3), Tokens(5, 12));
  on_cpu.medium = kMediumCpu;
  BlockStored unnamed = StoreTokens(Hashes(90, 3), {});
  unnamed.token_ids.reset();
  index_.Apply(kOther, Batch(on_cpu, unnamed));
  ASSERT_EQ(index_.counters(kOther).unnamed, 3u);
  ExpectRestored();
}

// A store on a host tier often has no tokens. The index then knows the content of the block from an
// evicted block with the same hash.
TEST_F(IndexImageTest, NamesOfEvictedBlocksAreRestored) {
  index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 2), Tokens(5, 8))));
  index_.Apply(kOther, Batch(Remove(Hashes(1, 2))));
  const sim::SavedIndex saved = Save();
  PrefixIndex restored(keys_);
  Register(restored);
  ASSERT_TRUE(saved.Restore(restored, kOther).ok());
  BlockStored event = StoreTokens(Hashes(1, 2), {});
  event.token_ids.reset();
  restored.Apply(kOther, Batch(event));
  EXPECT_EQ(restored.counters(kOther).unnamed, 0u);
}

// kWorker sends a false parent of block 1, so the hash 77 gets a false name.
TEST_F(IndexImageTest, ARestoredFalseParentHidesNoBlockOfAnotherWorker) {
  index_.Apply(kWorker, Batch(StoreTokens({Hash(1)}, Tokens(5, 4))));
  index_.Apply(kWorker, Batch(StoreTokens({Hash(1)}, Tokens(50, 4), Hash(77))));
  index_.Apply(kWorker, Batch(Remove({Hash(1), Hash(1)})));
  const EventBatch hidden =
      Batch(WithExtraKeys(StoreTokens({Hash(77)}, Tokens(90, 4)), {ExtraKeys{ExtraKey{}}}));
  for (const bool held : {false, true}) {
    if (held) index_.Apply(kWorker, hidden);
    const sim::SavedIndex saved = Save();
    PrefixIndex restored(keys_);
    Register(restored);
    ASSERT_TRUE(saved.Restore(restored, kWorker).ok());
    if (!held) restored.Apply(kWorker, hidden);
    restored.Apply(kWorker, Batch(StoreTokens({Hash(1)}, Tokens(50, 4), Hash(77))));
    restored.Apply(kOther, Batch(StoreTokens({Hash(1)}, Tokens(5, 4))));
    EXPECT_EQ(Answers(restored, 5)[1].gpu_tokens, 4) << held;
  }
}

TEST_F(IndexImageTest, ContradictionsAreRestored) {
  index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 1), Tokens(5, 4))));
  index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 1), Tokens(50, 4))));
  ASSERT_TRUE(Answers(index_, 9).at(1).ambiguous);
  ExpectRestored();
}

// Reports of hits make answers uncertain.
TEST_F(IndexImageTest, UncertaintyIsRestored) {
  index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 4), Tokens(5, 16))));
  index_.Apply(kOther, Batch(StoreTokens(Hashes(1, 4), Tokens(5, 16))));
  index_.NoteRecord(kOther);
  ASSERT_FALSE(Answers(index_, 17).at(1).certain);
  ExpectRestored();
}

TEST_F(IndexImageTest, ARemovedWorkerAndAHiddenGenerationAreNotSaved) {
  StoreHybrid();
  index_.BeginHidden(kOther);
  index_.ApplyHidden(kOther, Batch(StoreTokens(Hashes(500, 9), Tokens(5, 36))));
  index_.ClearWorker(kWorker);
  ExpectRestored();
}

TEST_F(IndexImageTest, AWorkerThatIsNotRegisteredIsNotRestored) {
  StoreHybrid();
  const sim::SavedIndex saved = Save();
  PrefixIndex restored(keys_);
  EXPECT_EQ(saved.Restore(restored, kWorker).code(), StatusCode::kNotFound);
}

// The registration has changed since the image was made.
TEST_F(IndexImageTest, AnotherHashBlockSizeIsRefused) {
  StoreHybrid();
  const sim::SavedIndex saved = Save();
  PrefixIndex restored(keys_);
  WorkerConfig config;
  config.name = "learns";
  config.hash_block_size = 8;
  config.digests = true;
  ASSERT_TRUE(restored.AddWorker(kWorker, config).ok());
  EXPECT_EQ(saved.Restore(restored, kWorker).code(), StatusCode::kMalformed);
  EXPECT_EQ(restored.counters(kWorker).residencies, 0u);
}

// Restores the worker from the image with changed bytes. The index must not accept blocks that do
// not have the saved digest.
void RestoreDamaged(const ContentKeys& keys, const ResidencyTotals& truth,
                    const sim::SavedIndex& saved, void (*add)(PrefixIndex&, bool)) {
  PrefixIndex restored(keys);
  add(restored, true);
  if (saved.Restore(restored, kWorker).ok()) {
    EXPECT_EQ(restored.Digests(kWorker), truth);
  } else {
    EXPECT_TRUE(restored.Digests(kWorker).empty());
  }
}

// Such a run would have proven blocks after its first block.
TEST(RunImage, AnUnprovenRunOfSeveralBlocksIsRefused) {
  const auto reads = [](uint32_t blocks, uint32_t stride, uint32_t end) {
    FieldWriter to;
    for (const uint64_t field : {uint64_t{0}, uint64_t{blocks}, uint64_t{stride}, uint64_t{end}})
      to.Int(field);
    to.Int(0);  // holders
    to.Int(0);  // copy counts
    for (uint32_t i = 0; i < 2 * blocks; ++i) to.Fixed(i + 1);
    FieldReader from(to.bytes());
    return router::RunImage().Read(from);
  };
  constexpr uint32_t kUnproven = ~uint32_t{0};
  EXPECT_TRUE(reads(2, 16, 32));
  EXPECT_TRUE(reads(1, 16, kUnproven));
  EXPECT_FALSE(reads(2, 16, kUnproven));
  EXPECT_TRUE(reads(2, 16, kUnproven - 16));
}

TEST_F(IndexImageTest, EachShorterImageIsRefused) {
  StoreHybrid();
  const ResidencyTotals truth = index_.Digests(kWorker);
  for (const bool runs : {false, true}) {
    sim::SavedIndex saved = Save();
    auto& bytes = runs ? saved.shards()[0].runs : saved.shards()[0].learned[1];
    while (!bytes.empty()) {
      bytes.pop_back();
      if (bytes.empty()) break;
      PrefixIndex restored(keys_);
      Register(restored);
      EXPECT_FALSE(saved.Restore(restored, kWorker).ok()) << bytes.size();
      EXPECT_TRUE(restored.Digests(kWorker).empty());
    }
  }
}

TEST_F(IndexImageTest, EachChangedByteIsRefusedOrHarmless) {
  StoreHybrid();
  StoreHybrid();
  const ResidencyTotals truth = index_.Digests(kWorker);
  for (const bool runs : {false, true}) {
    sim::SavedIndex saved = Save();
    auto& bytes = runs ? saved.shards()[0].runs : saved.shards()[0].learned[1];
    for (size_t i = 0; i < bytes.size(); ++i) {
      const uint8_t right = bytes[i];
      for (const int change : {0x01, 0x80, 0xff}) {
        bytes[i] = static_cast<uint8_t>(right ^ change);
        RestoreDamaged(keys_, truth, saved,
                       [](PrefixIndex& index, bool digests) { Register(index, digests); });
      }
      bytes[i] = right;
    }
  }
}

}  // namespace
}  // namespace kvcast::testing
