// A batch may prove that the index holds all blocks of an engine. Feedback of an engine may
// contradict the answers of its source. These answers are then not exact.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query_engine.h"
#include "tests/support/content_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Full;
using kvcast::testing::Hash;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::Remove;
using kvcast::testing::StoreTokens;
using kvcast::testing::Tokens;

struct SourceProofTest : ::testing::Test {
  void Follow(int64_t gpu_blocks = 0, std::vector<GroupSpec> groups = {Full(4)}) {
    WorkerRegistration config;
    config.worker = Registered(std::move(groups));
    config.gpu_blocks = gpu_blocks;
    config.worker.offload_rule = offload_rule;
    sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  }
  BatchResult Send(const EventBatch& batch, uint64_t seq = 0) {
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    return sources[0]->OnBatch(payload, Seq(seq));
  }
  QueryAnswer Ask(int64_t tokens, SourceState state = SourceState::kSynced) const {
    const QueryEngine engine(index, [this, state](WorkerId) {
      return SourceStatus{.state = state, .replacements = sources[0]->replacements()};
    });
    const Query query{.tokens = Tokens(1, tokens), .prompt_tokens = tokens};
    return engine.Answer(query, sources).value().at(0);
  }
  void Compare(int64_t promised, int64_t reused, int times = 1) {
    for (int i = 0; i < times; ++i) sources[0]->NoteReuse(promised, reused, /*comparable=*/true);
  }

  std::optional<OffloadRule> offload_rule;  // of the sources that Follow adds
  PrefixIndex index;
  SourceList sources;
};

TEST_F(SourceProofTest, StoresOfAllBlocksOfTheEngineProveThatNoBlockIsMissing) {
  Follow(/*gpu_blocks=*/3);
  EXPECT_EQ(Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8)))), BatchResult::kApplied);
  EXPECT_EQ(Ask(9, SourceState::kCleared).reason,
            "the stream is cleared: 2 of 3 GPU blocks are known");
  EXPECT_EQ(Send(Batch(StoreTokens({Hash(3)}, Tokens(50, 4)))), BatchResult::kComplete);
}

// vLLM's connector announces no removes when a reset drops its blocks in host memory.
TEST_F(SourceProofTest, AClearWithoutAMediumMayHaveClearedHostMemory) {
  for (const Dialect dialect : {Dialect::kKvcast1, kDefaultDialect}) {
    offload_rule = OffloadRule::kConnector;
    sources.clear();
    index.RemoveWorker(WorkerId(0));
    Follow();
    const BlockStored stored = StoreTokens(Hashes(1, 2), Tokens(1, 8));
    BlockStored offloaded = stored;
    offloaded.medium = kMediumCpu;
    Send(Batch(stored, offloaded));
    EXPECT_TRUE(Ask(9).exact_with_cpu) << Ask(9).reason_with_cpu;
    std::vector<uint8_t> clear;
    EXPECT_TRUE(EncodeBatch(Batch(AllBlocksCleared{.medium = kMediumGpu}), dialect, clear).ok());
    EXPECT_EQ(sources[0]->OnBatch(clear, Seq(1)), BatchResult::kApplied);
    EXPECT_TRUE(Ask(9).exact);
    EXPECT_EQ(Ask(9).match.with_cpu_tokens, 8);
    EXPECT_EQ(Ask(9).exact_with_cpu, dialect == Dialect::kKvcast1)
        << "only kKvcast1 writes the medium of a clear";
    std::vector<uint8_t> host;
    const auto clear_host = Batch(AllBlocksCleared{.medium = kMediumCpu});
    EXPECT_TRUE(EncodeBatch(clear_host, Dialect::kKvcast1, host).ok());
    sources[0]->OnBatch(host, Seq(2));
    EXPECT_TRUE(Ask(9).exact_with_cpu) << "the clear names host memory";
    Send(Batch(AllBlocksCleared()), /*seq=*/3);
    EXPECT_TRUE(Ask(9).exact_with_cpu) << "host memory was empty";
  }
}

// A repeated store may report a hit instead of a new block.
TEST_F(SourceProofTest, CopiesProveNothing) {
  Follow(/*gpu_blocks=*/3);
  const auto store = [] { return StoreTokens(Hashes(1, 2), Tokens(1, 8)); };
  EXPECT_EQ(Send(Batch(store(), store())), BatchResult::kApplied);
}

TEST_F(SourceProofTest, TheNumberOfHashesProvesNothingIfBlocksMayHaveSeveral) {
  Follow(/*gpu_blocks=*/2, {Full(8)});
  ASSERT_TRUE(index.LearnHashBlockSize(WorkerId(0), 4).ok());
  EXPECT_EQ(Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 16), std::nullopt, 0, 8))),
            BatchResult::kApplied);
}

TEST_F(SourceProofTest, AnUnknownRemoveProvesNothing) {
  Follow(/*gpu_blocks=*/2);
  EXPECT_EQ(Send(Batch(Remove({Hash(9)}), StoreTokens(Hashes(1, 2), Tokens(1, 8)))),
            BatchResult::kImpossible);
}

TEST_F(SourceProofTest, AClearedCacheLacksNothing) {
  Follow();
  EXPECT_EQ(Send(Batch(AllBlocksCleared())), BatchResult::kEmptied);
  EXPECT_EQ(Send(Batch(StoreTokens({Hash(1)}, Tokens(1, 4)))), BatchResult::kApplied);
}

TEST_F(SourceProofTest, AClearProvesNothingAboutOtherTiers) {
  Follow();
  BlockStored offloaded = StoreTokens({Hash(1)}, Tokens(1, 4));
  offloaded.medium = "CPU";
  EXPECT_EQ(Send(Batch(offloaded)), BatchResult::kApplied);
  EXPECT_EQ(Send(Batch(AllBlocksCleared())), BatchResult::kApplied);
}

// Neither a clear of the GPU nor a full GPU shows the blocks in host memory that were stored
// earlier.
TEST_F(SourceProofTest, AfterMissedBatchesLoadsAreNotExact) {
  offload_rule = OffloadRule::kConnector;
  Follow(/*gpu_blocks=*/2);
  Send(Batch(StoreTokens({Hash(1)}, Tokens(1, 4))));
  EXPECT_EQ(Ask(9).reason_with_cpu, "");
  sources[0]->OnReset(ResetReason::kLostBatches);
  EXPECT_EQ(Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8)))), BatchResult::kComplete);
  EXPECT_TRUE(Ask(9).exact);
  EXPECT_EQ(Ask(9).reason_with_cpu,
            "blocks in host memory are missing, or a reset may have dropped them");
  sources[0]->OnReset(ResetReason::kRestart);
  Send(Batch(StoreTokens({Hash(1)}, Tokens(1, 4))));
  EXPECT_TRUE(Ask(9).exact_with_cpu);
}

TEST_F(SourceProofTest, AfterALateJoinLoadsAreNotExact) {
  offload_rule = OffloadRule::kConnector;
  Follow();
  EXPECT_EQ(Send(Batch(AllBlocksCleared()), /*seq=*/5), BatchResult::kEmptied);
  Send(Batch(StoreTokens({Hash(1)}, Tokens(1, 4))), /*seq=*/6);
  EXPECT_EQ(Ask(9).reason, "");
  EXPECT_EQ(Ask(9).reason_with_cpu,
            "blocks in host memory are missing, or a reset may have dropped them");
}

// vLLM's connector announces tokens of blocks in each lower tier, but no salts.
TEST_F(SourceProofTest, AConnectorWithoutSaltsNamesNoBlocksInAnyTier) {
  Follow();
  BlockStored salted = StoreTokens(Hashes(1, 1), Tokens(1, 4));
  salted.extra_keys.emplace(1, ExtraKeys{ExtraKey::Text("tenant")});
  Send(Batch(salted));
  for (const char* const medium : {"CPU", "STORAGE"}) {
    BlockStored lower = StoreTokens(Hashes(1, 1), Tokens(1, 4));
    lower.medium = medium;
    lower.extra_keys.reset();
    Send(Batch(lower));
    EXPECT_EQ(Ask(5).match.with_storage_tokens, 0) << medium << ": the prompt has no salt";
    EXPECT_TRUE(Ask(5).exact) << medium << ": " << Ask(5).reason;
  }
}

// vLLM's connector announces tokens, but no salts. The GPU store, which had the salt, was missed.
TEST_F(SourceProofTest, AfterALateJoinAConnectorNamesNoBlock) {
  Follow();
  BlockStored offloaded = StoreTokens({Hash(1)}, Tokens(1, 4));
  offloaded.medium = "CPU";
  offloaded.extra_keys.reset();
  Send(Batch(offloaded), /*seq=*/5);
  EXPECT_EQ(Ask(9).match.with_cpu_tokens, 0);
}

TEST_F(SourceProofTest, AContradictedSourceIsNotSaved) {
  WorkerRegistration config;
  config.worker = Registered({Full(4)});
  config.replay_endpoint = "tcp://127.0.0.1:1";
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8))));
  EXPECT_TRUE(sources[0]->CanSave());
  Compare(8, 4, 3);
  EXPECT_FALSE(sources[0]->CanSave());
}

// The blocks of the undecodable batch are dropped, so later answers are not wrong.
TEST_F(SourceProofTest, AResetEndsTheDoubtAboutUndecodableBatches) {
  Follow();
  const std::vector<uint8_t> damaged = {0xc1};
  EXPECT_EQ(sources[0]->OnBatch(damaged), BatchResult::kUndecodable);
  EXPECT_EQ(Send(Batch(AllBlocksCleared())), BatchResult::kEmptied);
  EXPECT_EQ(sources[0]->State(SourceState::kSynced), SourceState::kSynced);
}

TEST_F(SourceProofTest, AnswersThatFeedbackContradictsAreNotExact) {
  Follow();
  Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8))));
  EXPECT_TRUE(Ask(9).exact);
  Compare(8, 4, 2);
  EXPECT_TRUE(Ask(9).exact);
  Compare(8, 4);
  EXPECT_FALSE(Ask(9).exact);
  EXPECT_TRUE(Ask(9).reuse_contradicts);
  EXPECT_EQ(Ask(9).reason,
            "feedback: requests reuse 4 tokens fewer than predicted, as if a block is dropped for "
            "a draft head: set eagle");
  Compare(8, 8, ReuseFeedback::kAgreeing);
  EXPECT_TRUE(Ask(9).exact);
}

TEST_F(SourceProofTest, FeedbackThatCannotBeComparedContradictsNothing) {
  Follow();
  Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8))));
  for (int i = 0; i < 10; ++i) sources[0]->NoteReuse(8, 4, /*comparable=*/false);
  EXPECT_TRUE(Ask(9).exact);
}

TEST_F(SourceProofTest, TheReasonOfAContradictionNamesTheProbableCause) {
  Follow();
  Send(Batch(StoreTokens(Hashes(1, 2), Tokens(1, 8))));
  Compare(8, 11, 3);
  EXPECT_EQ(Ask(9).reason,
            "feedback: requests reuse 3 tokens more than predicted, as if the engine has a release "
            "that looks up more blocks: set release");
  Compare(8, 1, 3);
  EXPECT_EQ(Ask(9).reason,
            "feedback: requests reuse 7 tokens fewer than predicted, as if a group announces "
            "nothing: set groups, or replay_tokens");
}

// TensorRT-LLM's events have no salts, and name images by keys that no query has.
TEST_F(SourceProofTest, PromptsWithASaltAreNotExactIfTheEventsShowNoSalts) {
  WorkerRegistration config;
  config.worker = Registered({});
  config.format = EventFormat::kTrtllm;
  config.trtllm = {.window_sizes = {64}, .tokens_per_block = 4};
  config.trtllm.partial_reuse = false;
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  const std::string json =
      R"([{"event_id": 0, "window_size": 64, "data": {"type": "stored", "parent_hash": null,
           "blocks": [{"block_hash": 1, "cache_level": 0, "tokens": [
             {"token_id": 1, "token_extra_id": 0}, {"token_id": 2, "token_extra_id": 0},
             {"token_id": 3, "token_extra_id": 0}, {"token_id": 4, "token_extra_id": 0}]}]}}])";
  const std::vector<uint8_t> payload(json.begin(), json.end());
  sources[0]->OnBatch(payload, Seq(0));
  EXPECT_EQ(Ask(9).match.gpu_tokens, 4);
  EXPECT_EQ(Ask(9).reason, "");
  const QueryEngine engine(index,
                           [](WorkerId) { return SourceStatus{.state = SourceState::kSynced}; });
  Query salted{.tokens = Tokens(1, 9), .prompt_tokens = 9};
  salted.inputs.cache_salt = "tenant";
  const QueryAnswer answer = engine.Answer(salted, sources).value().at(0);
  EXPECT_FALSE(answer.exact);
  EXPECT_EQ(answer.reason, "inputs: the events of the source do not show images and salts");
}

TEST_F(SourceProofTest, MoreBlocksThanTheLimitAreTooLarge) {
  WorkerRegistration config;
  config.worker = Registered({Full(4), Full(4)});
  config.max_residencies = 6;
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  EXPECT_EQ(Send(Batch(StoreTokens(Hashes(1, 4), Tokens(1, 16)),
                       StoreTokens(Hashes(1, 2), Tokens(1, 8), std::nullopt, 1))),
            BatchResult::kApplied);
  EXPECT_EQ(Send(Batch(StoreTokens({Hash(9)}, Tokens(90, 4)))), BatchResult::kTooLarge);
  EXPECT_EQ(sources[0]->counters().oversized, 1u);
  sources[0]->OnReset(ResetReason::kDoubt);
  EXPECT_EQ(sources[0]->index_counters().residencies, 0u);
  EXPECT_EQ(Send(Batch(StoreTokens({Hash(9)}, Tokens(90, 4)))), BatchResult::kApplied);
}

// A repair lists each copy of a block, so the number of copies is limited too.
TEST_F(SourceProofTest, ManyCopiesOfOneBlockAreTooLarge) {
  constexpr int kCopiesOfABatch = 1 << 16;
  WorkerRegistration config;
  config.worker = Registered({Full(4)});
  config.replay_endpoint = "tcp://127.0.0.1:2";
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  BlockStored copies =
      kvcast::testing::StoreFull(std::vector<BlockHash>(kCopiesOfABatch, Hash(1)), 0, 4);
  copies.parent_block_hash = Hash(2);
  for (int i = 0; i < 16; ++i) ASSERT_NE(Send(Batch(copies)), BatchResult::kTooLarge) << i;
  EXPECT_EQ(sources[0]->index_counters().residencies, 1u);
  EXPECT_EQ(Send(Batch(copies)), BatchResult::kTooLarge);
}

TEST_F(SourceProofTest, AboveTheBoundOfAllSourcesTheLargeSourceIsTooLarge) {
  const auto budget = std::make_shared<ResidencyBudget>(8);
  WorkerRegistration config;
  for (const uint32_t id : {0u, 1u}) {
    config.worker = Registered({Full(4)});
    config.worker.name = "w" + std::to_string(id);
    sources.push_back(WorkerIngest::Create(WorkerId(id), config, index, budget).value());
  }
  const auto send = [&](size_t source, const EventBatch& batch) {
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    return sources[source]->OnBatch(payload);
  };
  EXPECT_EQ(send(0, Batch(StoreTokens(Hashes(1, 6), Tokens(1, 24)))), BatchResult::kApplied);
  EXPECT_EQ(send(1, Batch(StoreTokens(Hashes(1, 3), Tokens(1, 12)))), BatchResult::kApplied);
  EXPECT_EQ(send(0, Batch(StoreTokens({Hash(9)}, Tokens(90, 4)))), BatchResult::kTooLarge);
  sources[0]->OnReset(ResetReason::kDoubt);
  EXPECT_EQ(budget->total(), 3u);
  EXPECT_EQ(send(1, Batch(StoreTokens({Hash(9)}, Tokens(90, 4)))), BatchResult::kApplied);
}

// A snapshot is counted before it replaces the state.
TEST_F(SourceProofTest, ASnapshotAboveTheLimitIsRefused) {
  WorkerRegistration config;
  config.worker = Registered({Full(4)});
  config.max_residencies = 3;
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  std::vector<uint8_t> part;
  ASSERT_TRUE(
      EncodeBatch(Batch(StoreTokens(Hashes(1, 6), Tokens(1, 24))), kDefaultDialect, part).ok());
  sources[0]->BeginSnapshot();
  EXPECT_TRUE(sources[0]->AddToSnapshot(part)) << "a block may have two copies";
  EXPECT_FALSE(sources[0]->AddToSnapshot(part));
  sources[0]->DropSnapshot();
}

}  // namespace
}  // namespace kvcast::router
