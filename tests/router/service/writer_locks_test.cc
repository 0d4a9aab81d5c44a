// A batch takes the lock of the worker's shard once. Without a concurrent batch, a query takes no
// lock.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "router/service/route/query_engine.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Full;
using kvcast::testing::Registered;

constexpr int64_t kHashBlockSize = 16;

std::vector<TokenId> CountedPrompt(int64_t tokens) {
  std::vector<TokenId> prompt(static_cast<size_t>(tokens));
  std::iota(prompt.begin(), prompt.end(), 1000);
  return prompt;
}

// A source whose batches extend one prompt. The replay endpoint turns digests on, and the number of
// GPU blocks is known.
class WriterLocksTest : public ::testing::Test {
 protected:
  WriterLocksTest() {
    WorkerRegistration config;
    config.worker = Registered({Full(kHashBlockSize)});
    config.worker.name = "a";
    config.replay_endpoint = "tcp://127.0.0.1:1";
    config.gpu_blocks = 100;
    sources_.push_back(WorkerIngest::Create(WorkerId(0), config, index_).value());
    std::vector<Digest> digests;
    BlockHasher::FromSeed(HashAlgorithm::kSha256, "0")
        ->ExtendChain(CountedPrompt(64 * kHashBlockSize), kHashBlockSize, {}, digests);
    for (const Digest& digest : digests) {
      hashes_.push_back(ToEventHash(digest, EventHashForm::kInt64));
    }
  }

  BatchResult Store(size_t block, bool with_tokens = true) {
    BlockStored stored;
    stored.block_hashes = {hashes_[block]};
    if (block > 0) stored.parent_block_hash = hashes_[block - 1];
    stored.block_size = kHashBlockSize;
    stored.group_idx = 0;
    stored.kv_cache_spec_kind = "full_attention";
    if (with_tokens) {
      const std::vector<TokenId> tokens = CountedPrompt(64 * kHashBlockSize);
      const auto begin = tokens.begin() + static_cast<int64_t>(block) * kHashBlockSize;
      stored.token_ids.emplace(begin, begin + kHashBlockSize);
    }
    return Send(Batch(stored));
  }
  BatchResult Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    return sources_[0]->OnBatch(payload, Seq(next_seq_++));
  }

  std::vector<QueryAnswer> Ask(SourceState state) {
    SourceStatus status;
    status.state = state;
    const QueryEngine engine(index_, [&](WorkerId) { return status; });
    Query query;
    query.tokens = CountedPrompt(64 * kHashBlockSize);
    query.prompt_tokens = 64 * kHashBlockSize;
    query.by_tokens = true;
    return engine.Answer(query, sources_).value();
  }

  PrefixIndex index_;
  SourceList sources_;
  std::vector<BlockHash> hashes_;
  uint64_t next_seq_ = 0;
};

TEST_F(WriterLocksTest, ABatchTakesOneLock) {
  Store(0);  // also proves the hash scheme; the source then sets hash_block_size in the index
  const uint64_t before = index_.writer_locks();
  for (size_t block = 1; block < 33; ++block) EXPECT_EQ(Store(block), BatchResult::kApplied);
  EXPECT_EQ(index_.writer_locks() - before, 32u);
}

TEST_F(WriterLocksTest, AQueryTakesNoLock) {
  for (size_t block = 0; block < 33; ++block) Store(block);
  Store(40, /*with_tokens=*/false);  // a block without a name
  const uint64_t before = index_.writer_locks();
  const auto synced = Ask(SourceState::kSynced);
  EXPECT_EQ(synced[0].match.gpu_tokens, 33 * kHashBlockSize);
  EXPECT_EQ(synced[0].match.unnamed_gpu, 1u);
  const auto cleared = Ask(SourceState::kCleared);
  EXPECT_NE(cleared[0].reason.find("34 of 100 GPU blocks are known"), std::string::npos)
      << cleared[0].reason;
  EXPECT_EQ(index_.writer_locks(), before);
}

}  // namespace
}  // namespace kvcast::router
