// A damaged batch or event makes a source suspect. An event of an unknown type does not make the
// source suspect. After a damaged batch, the index forgets all blocks of the worker. A source also
// learns the hash scheme of the stores.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/worker_ingest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/router/names/scheme_streams.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::BatchOfOneArray;
using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::Full;
using kvcast::testing::HasherOf;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::Remove;
using kvcast::testing::RootStore;
using kvcast::testing::SchemeTokens;
using kvcast::testing::StoreFull;
using kvcast::testing::StoreWindow;
using kvcast::testing::Window;

struct SourceTest : ::testing::Test {
  SourceTest() {
    WorkerRegistration config;
    config.worker = Registered({Full()});
    source = WorkerIngest::Create(WorkerId(3), config, index).value();
  }
  void Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    source->OnBatch(payload);
  }
  int64_t Reusable() const { return index.Match(Hashes(1, 4), 16, 65)[0].gpu_tokens; }
  SourceState State() const { return source->State(SourceState::kSynced); }

  PrefixIndex index;
  std::unique_ptr<WorkerIngest> source;
};

TEST_F(SourceTest, AppliesDecodedEvents) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(Reusable(), 64);
  EXPECT_EQ(source->counters().decode.decoded, 1u);
  EXPECT_EQ(State(), SourceState::kSynced);
  EXPECT_EQ(source->State(SourceState::kGap), SourceState::kGap);
}

TEST_F(SourceTest, AResetReportsTheBlocksThatAnUndecodableBatchDropped) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(source->OnBatch(std::vector<uint8_t>{0xc1}), BatchResult::kUndecodable);
  EXPECT_EQ(source->OnReset(ResetReason::kDoubt), 4u);
  EXPECT_EQ(source->OnReset(ResetReason::kDoubt), 0u);
  Send(Batch(StoreFull(Hashes(1, 2), 0)));
  EXPECT_EQ(source->OnReset(ResetReason::kDoubt), 2u);
}

// From v0.33 on, vLLM writes the map head of a store with a 16-bit count. The release decides the
// answer here: from v0.32 on, a lookup that drops a block for a draft head looks one unit further.
TEST_F(SourceTest, AWideHeaderOfAStoreShowsTheRelease) {
  GroupSpec group = Full();
  group.eagle = true;
  WorkerRegistration config;
  config.worker = Registered({group, group});
  source = WorkerIngest::Create(WorkerId(4), config, index).value();
  const auto unknown = [&] {
    return index.Match(Hashes(1, 4), 16, 64, {{WorkerId(4)}})[0].unknown;
  };
  EventBatch batch = Batch(StoreFull(Hashes(1, 4), 0), StoreFull(Hashes(1, 4), 1));
  std::vector<uint8_t> payload;
  ASSERT_TRUE(EncodeBatch(batch, Dialect::kVllm11, payload).ok());
  source->OnBatch(payload);
  EXPECT_NE(unknown() & static_cast<uint32_t>(UnknownProperty::kRelease), 0u);
  // [ts, [event, event], rank]: the head of the first event is the twelfth byte.
  const uint8_t head = payload.at(11);
  ASSERT_EQ(head & 0xf0, 0x80);
  payload[11] = 0xde;
  payload.insert(payload.begin() + 12, {0, static_cast<uint8_t>(head & 0x0f)});
  source->OnBatch(payload);
  EXPECT_EQ(unknown(), 0u);
}

// A fork of an older release also writes wide headers. Its stores that leave out blocks have fields
// that no release has.
TEST_F(SourceTest, ASkippedFieldShowsThatWideHeadersComeFromAFork) {
  GroupSpec group = Full();
  group.eagle = true;
  WorkerRegistration config;
  config.worker = Registered({group, group});
  source = WorkerIngest::Create(WorkerId(4), config, index).value();
  const auto lacks_release = [&] {
    const WorkerMatch match = index.Match(Hashes(1, 4), 16, 64, {{WorkerId(4)}})[0];
    return (match.unknown & static_cast<uint32_t>(UnknownProperty::kRelease)) != 0;
  };
  EventBatch batch = Batch(StoreFull(Hashes(1, 4), 0), StoreFull(Hashes(1, 4), 1));
  std::vector<uint8_t> wide;
  ASSERT_TRUE(EncodeBatch(batch, Dialect::kVllm12, wide).ok());
  source->OnBatch(wide);
  EXPECT_FALSE(lacks_release());
  // [ts, [event, event], rank]: the head of the first event is at bytes 11 to 13.
  std::vector<uint8_t> forked = wide;
  ASSERT_EQ(forked.at(11), 0xde);
  ++forked[13];
  const std::string key = "skipped_token_ids";
  std::vector<uint8_t> pair = {static_cast<uint8_t>(0xa0 + key.size())};
  pair.insert(pair.end(), key.begin(), key.end());
  pair.push_back(0xc0);
  forked.insert(forked.begin() + 14, pair.begin(), pair.end());
  source->OnBatch(forked);
  EXPECT_EQ(source->counters().decode.rejected_total(), 0u);
  EXPECT_TRUE(lacks_release());
  source->OnBatch(wide);
  EXPECT_TRUE(lacks_release()) << "the fork sends wide headers in all stores";
}

TEST_F(SourceTest, ATimeStampOfZeroIsNone) {
  EventBatch batch = Batch(StoreFull(Hashes(1, 1), 0));
  batch.ts = 5;
  Send(batch);
  EXPECT_EQ(source->last_batch_ts(), 5);
  batch.ts = 0;
  Send(batch);
  EXPECT_EQ(source->last_batch_ts(), std::nullopt);
}

TEST_F(SourceTest, AnUndecodableBatchForgetsAllBlocks) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  source->OnBatch(std::vector<uint8_t>{0xc1, 0x00});
  EXPECT_EQ(Reusable(), 0);
  EXPECT_EQ(State(), SourceState::kSynced) << "the index has no wrong block";
  EXPECT_EQ(source->counters().undecodable_batches, 1u);
}

TEST_F(SourceTest, ABrokenEventMakesTheSourceSuspectAndKeepsTheBlocks) {
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  source->OnBatch(BatchOfOneArray("BlockRemoved", 0x05));
  EXPECT_EQ(source->counters().decode.rejected_total(), 1u);
  EXPECT_EQ(Reusable(), 64);
  EXPECT_EQ(State(), SourceState::kSuspect);
}

TEST_F(SourceTest, AnEventOfAnUnknownTypeDegradesNothing) {
  source->OnBatch(BatchOfOneArray("BlockPromoted", 0x05));
  EXPECT_EQ(source->counters().decode.rejected_total(), 1u);
  EXPECT_EQ(State(), SourceState::kSynced);
}

TEST_F(SourceTest, AResetEndsTheDegradation) {
  for (const ResetReason reason : {ResetReason::kLostBatches, ResetReason::kRestart}) {
    source->OnBatch(BatchOfOneArray("BlockRemoved", 0x05));
    EXPECT_EQ(State(), SourceState::kSuspect);
    source->OnReset(reason);
    EXPECT_EQ(State(), SourceState::kSynced);
  }
}

TEST_F(SourceTest, ResetForgetsTheBlocksOfTheWorker) {
  for (const ResetReason reason : {ResetReason::kLostBatches, ResetReason::kRestart}) {
    Send(Batch(StoreFull(Hashes(1, 4), 0)));
    EXPECT_EQ(Reusable(), 64);
    source->OnReset(reason);
    EXPECT_EQ(Reusable(), 0);
  }
}

struct CacheSize : SourceTest {
  void Follow(std::vector<GroupSpec> groups, int64_t gpu_blocks) {
    WorkerRegistration config;
    config.worker = Registered(std::move(groups));
    config.gpu_blocks = gpu_blocks;
    source = WorkerIngest::Create(WorkerId(4), config, index).value();
    EXPECT_EQ(source->cache_tokens(), 0);
  }
};

TEST_F(CacheSize, IsThatOfTheConfiguredBlocks) {
  Follow({Full()}, 100);
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(source->cache_tokens(), 100 * 16);
  Send(Batch(Remove(Hashes(1, 4))));
  EXPECT_EQ(source->cache_tokens(), 100 * 16);
}

TEST_F(CacheSize, IsLearnedFromTheBlocksAfterTheFirstRemove) {
  Follow({Full()}, 0);
  Send(Batch(StoreFull(Hashes(1, 10), 0)));
  EXPECT_EQ(source->cache_tokens(), 0) << "the cache may have more room";
  Send(Batch(Remove(Hashes(1, 1))));
  EXPECT_EQ(source->cache_tokens(), 9 * 16);
  Send(Batch(StoreFull(Hashes(50, 3), 0)));
  EXPECT_EQ(source->cache_tokens(), 12 * 16);
  Send(Batch(Remove(Hashes(50, 3))));
  EXPECT_EQ(source->cache_tokens(), 12 * 16) << "the largest number of blocks counts";
}

TEST_F(CacheSize, IsSharedByTheFullAttentionGroups) {
  Follow({Full(), Full(), Window(32)}, 90);
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(source->cache_tokens(), 90 * 16 / 2);
}

TEST_F(CacheSize, IsSharedByGroupsThatAreLearnedLater) {
  Follow({}, 90);
  Send(Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(source->cache_tokens(), 90 * 16);
  Send(Batch(StoreFull(Hashes(1, 4), 1)));
  EXPECT_EQ(source->cache_tokens(), 90 * 16 / 2);
  Send(Batch(StoreWindow(Hashes(1, 4), 2, 32)));
  EXPECT_EQ(source->cache_tokens(), 90 * 16 / 2);
}

TEST_F(SourceTest, FormOfTheHashesIsTakenFromTheStores) {
  EXPECT_EQ(source->scheme().form, EventHashForm::kInt64);
  const std::vector<uint8_t> digest(32, 7);
  Send(Batch(StoreFull({BlockHash::FromBytes(digest)}, 0)));
  EXPECT_EQ(source->scheme().form, EventHashForm::kBytes);
}

// The source uses the hash scheme of the stores from the first store on.
struct SourceSchemeTest : ::testing::Test {
  void Create(const WorkerRegistration& config) {
    source = WorkerIngest::Create(WorkerId(3), config, index).value();
  }
  void Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    source->OnBatch(payload);
  }
  static WorkerRegistration Unregistered() {
    WorkerRegistration config;
    config.worker = Registered({});
    return config;
  }

  PrefixIndex index;
  std::unique_ptr<WorkerIngest> source;
};

TEST_F(SourceSchemeTest, TheSchemeAndTheHashUnitAreLearned) {
  Create(Unregistered());
  EXPECT_EQ(source->scheme().algorithm, HashAlgorithm::kSha256);
  const EngineScheme engine{
      .algorithm = HashAlgorithm::kXxhash, .seed = "42", .hash_block_size = 8};
  Send(Batch(DenseStore(engine, SchemeTokens(64, 1), 0, 2, 32)));
  EXPECT_EQ(source->verdict()->state, SchemeState::kMatched);
  EXPECT_EQ(source->scheme().algorithm, HashAlgorithm::kXxhash);
  const BlockHasher hasher = HasherOf(engine);
  const auto none_hash = hasher.none_hash().bytes();
  EXPECT_TRUE(std::ranges::equal(source->scheme().none_hash, none_hash));
  EXPECT_EQ(index.hash_block_size(WorkerId(3)), 8);
  EXPECT_EQ(source->scheme_counters().matched, 1u);
}

TEST_F(SourceSchemeTest, CandidatesOfTheRegistrationAreTried) {
  const EngineScheme named{.seed = "ours"};
  const EngineScheme raw{.seed = "nobody knows"};
  WorkerRegistration config = Unregistered();
  config.candidate_seeds = {"ours"};
  const auto none_hash = HasherOf(raw).none_hash();
  config.candidate_none_hashes = {{none_hash.bytes().begin(), none_hash.bytes().end()}};
  Create(config);
  for (const EngineScheme& engine : {named, raw}) {
    source->OnReset(ResetReason::kRestart);
    EXPECT_EQ(source->verdict()->state, SchemeState::kUnknown);
    Send(Batch(RootStore(engine, 1)));
    EXPECT_EQ(source->verdict()->state, SchemeState::kMatched);
  }
}

TEST_F(SourceSchemeTest, RestartWithAnotherUnitIsLearned) {
  Create(Unregistered());
  Send(Batch(RootStore({.hash_block_size = 16}, 1)));
  EXPECT_EQ(index.hash_block_size(WorkerId(3)), 16);
  source->OnReset(ResetReason::kRestart);
  Send(Batch(RootStore({.hash_block_size = 24}, 1)));
  EXPECT_EQ(index.hash_block_size(WorkerId(3)), 24);
}

// An engine restarts with another block size, and the source gets no reset. A sampled store shows
// the change. The index then drops all blocks that were stored before the batch of the sampled
// store, also the blocks of the new engine.
TEST_F(SourceSchemeTest, SilentChangeOfTheUnitIsLearnedToo) {
  Create(Unregistered());
  Send(Batch(RootStore({.hash_block_size = 16}, 1)));
  const uint64_t replacements = source->replacements();
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSynced);
  for (int64_t n = 0; n < 64; ++n) Send(Batch(RootStore({.hash_block_size = 24}, n)));
  EXPECT_EQ(index.hash_block_size(WorkerId(3)), 24);
  EXPECT_EQ(source->scheme_counters().changes, 1u);
  EXPECT_LT(index.counters(WorkerId(3)).residencies, 64u);
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSuspect);
  EXPECT_EQ(source->replacements(), replacements + 1);
}

// The source gets no reset when an engine of another release and with another block size starts.
// The first batch shows the release and the block size. The release decides the answer, because a
// draft head drops a block.
TEST_F(SourceSchemeTest, AReleaseIsLearnedFromTheBatchThatChangesTheUnit) {
  WorkerRegistration config = Unregistered();
  config.worker.eagle = true;
  Create(config);
  const auto send = [&](int64_t unit, Dialect dialect) {
    const EngineScheme engine{.hash_block_size = unit};
    BlockStored full = DenseStore(engine, SchemeTokens(4 * unit, 1), 0, 4, unit);
    BlockStored window = full;
    window.group_idx = 1;
    window.kv_cache_spec_kind = "sliding_window";
    window.kv_cache_spec_sliding_window = unit + 1;
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(Batch(AllBlocksCleared{}, full, window), dialect, payload).ok());
    source->OnBatch(payload);
  };
  const auto lacks_release = [&](int64_t unit) {
    BlockHasher hasher = HasherOf({.hash_block_size = unit});
    std::vector<Digest> chain;
    hasher.ExtendChain(SchemeTokens(4 * unit, 1), unit, {}, chain);
    std::vector<BlockHash> hashes;
    for (const Digest& digest : chain) hashes.push_back(ToEventHash(digest, EventHashForm::kInt64));
    const auto match = index.Match(hashes, unit, 4 * unit, {{WorkerId(3)}})[0];
    return (match.unknown & static_cast<uint32_t>(UnknownProperty::kRelease)) != 0;
  };
  send(16, Dialect::kVllm11);
  EXPECT_TRUE(lacks_release(16));
  send(24, Dialect::kVllm12);
  ASSERT_EQ(index.hash_block_size(WorkerId(3)), 24);
  EXPECT_FALSE(lacks_release(24));
}

TEST_F(SourceSchemeTest, RegisteredUnitIsNotOverruled) {
  WorkerRegistration config;
  config.worker = Registered({Full(32)}, 16);
  Create(config);
  Send(Batch(RootStore({.hash_block_size = 32}, 1)));
  EXPECT_EQ(source->verdict()->state, SchemeState::kMismatch);
  EXPECT_EQ(index.hash_block_size(WorkerId(3)), 16);
}

TEST(SourceCreate, RefusesInvalidSources) {
  PrefixIndex index;
  WorkerRegistration unnamed;
  EXPECT_FALSE(WorkerIngest::Create(WorkerId(1), unnamed, index).ok());
  WorkerRegistration bad_groups;
  bad_groups.worker = Registered({Full(0)});
  const auto refused = WorkerIngest::Create(WorkerId(1), bad_groups, index);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(), "worker: groups[0].block_size: out of range");
}

}  // namespace
}  // namespace kvcast::router
