// The decoder returns the corpus that was encoded. The decoder refuses a damaged file and names the
// reason. MakeCorpus makes the same valid corpus from the same trace.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <map>
#include <set>

#include "apps/bench/index/corpus_maker.h"

namespace kvcast::bench {
namespace {

using ::testing::HasSubstr;

Corpus Small() {
  return {
      .workers = 3,
      .block_tokens = 128,
      .records = {{.due = 0, .worker = 2, .op = CorpusOp::kQuery, .blocks = {{1, 2}, {3, 4}}},
                  {.due = 5, .worker = 0, .op = CorpusOp::kStore, .parent = 9, .blocks = {{5, 6}}},
                  {.due = 5, .worker = 0, .op = CorpusOp::kRemove, .blocks = {{5, 6}}},
                  {.due = kCorpusWindow, .worker = 1, .op = CorpusOp::kQuery, .blocks = {}}}};
}

// Recomputes the checksum, so that it matches the damaged bytes.
std::vector<uint8_t> Rehashed(std::vector<uint8_t> bytes) {
  const size_t end = bytes.size() - 32;
  SHA256(bytes.data(), end, &bytes[end]);
  return bytes;
}

std::string DecodeError(const std::vector<uint8_t>& bytes) {
  const auto corpus = DecodeCorpus(bytes);
  return corpus.ok() ? "" : corpus.status().message();
}

TEST(CorpusFile, RoundTrip) {
  const auto corpus = DecodeCorpus(EncodeCorpus(Small()));
  ASSERT_TRUE(corpus.ok()) << corpus.status().message();
  EXPECT_EQ(*corpus, Small());
  EXPECT_EQ(corpus->record_blocks(), 4u);
}

TEST(CorpusFile, BytesAreAsDocumented) {
  const auto bytes = EncodeCorpus(Small());
  EXPECT_EQ(bytes.size(), 32u + 4 * 32 + 4 * 16 + 32);
  EXPECT_EQ(std::string(bytes.begin(), bytes.begin() + 8), "KVCORPUS");
  EXPECT_EQ(bytes[8], 1);   // version
  EXPECT_EQ(bytes[12], 3);  // workers
  EXPECT_EQ(bytes[16], 128);
  EXPECT_EQ(bytes[24], 4);       // records
  EXPECT_EQ(bytes[32 + 8], 2);   // worker
  EXPECT_EQ(bytes[32 + 12], 1);  // query
  EXPECT_EQ(bytes[32 + 24], 2);  // blocks
  EXPECT_EQ(bytes[64], 1);       // local
  EXPECT_EQ(bytes[72], 2);       // sequence
  EXPECT_EQ(CorpusHash(bytes).size(), 64u);
}

TEST(CorpusFile, DamageIsRefused) {
  const auto good = EncodeCorpus(Small());
  EXPECT_THAT(DecodeError({}), HasSubstr("too short"));
  auto bytes = good;
  bytes[0] = 'X';
  EXPECT_THAT(DecodeError(Rehashed(bytes)), HasSubstr("KVCORPUS"));
  bytes = good;
  bytes[8] = 2;
  EXPECT_THAT(DecodeError(Rehashed(bytes)), HasSubstr("version 2"));
  bytes = good;
  bytes.resize(good.size() - 16);
  EXPECT_THAT(DecodeError(bytes), HasSubstr("truncated"));
  for (size_t i = 12; i < good.size(); ++i) {
    bytes = good;
    bytes[i] ^= 1;
    EXPECT_THAT(DecodeError(bytes), HasSubstr("hash")) << i;
  }
}

TEST(CorpusFile, RefusesInvalidFieldsAndNamesTheirPlace) {
  const auto good = EncodeCorpus(Small());
  const auto with = [&](size_t offset, uint8_t value) {
    auto bytes = good;
    bytes[offset] = value;
    return DecodeError(Rehashed(bytes));
  };
  constexpr size_t kFirst = 32;
  constexpr size_t kSecond = kFirst + 32 + 2 * 16;
  EXPECT_THAT(with(12, 0), HasSubstr("workers"));
  EXPECT_THAT(with(16, 0), HasSubstr("0 tokens"));
  EXPECT_THAT(with(24, 5), HasSubstr("truncated (record 4, byte"));
  EXPECT_THAT(with(24, 3), HasSubstr("extra bytes"));
  EXPECT_THAT(with(kFirst, 9), HasSubstr("due before the previous record (record 1"));
  EXPECT_THAT(with(kFirst + 7, 1),
              HasSubstr("due after the end of the window (record 0, byte 32)"));
  EXPECT_THAT(with(kFirst + 8, 3), HasSubstr("no such worker"));
  EXPECT_THAT(with(kFirst + 12, 0), HasSubstr("unknown operation"));
  EXPECT_THAT(with(kFirst + 12, 4), HasSubstr("unknown operation"));
  EXPECT_THAT(with(kFirst + 16, 1), HasSubstr("a query or a remove has a parent (record 0"));
  EXPECT_THAT(with(kSecond + 31, 255), HasSubstr("too short for the number of blocks (record 1"));
}

std::vector<tools::TraceRequest> Trace() {
  std::vector<tools::TraceRequest> trace;
  for (int64_t i = 0; i < 60; ++i) {
    tools::TraceRequest request{.arrival_s = 0.01 * static_cast<double>(i), .output_length = 300};
    request.block_ids = {0, i % 7 + 1, 100 + i};
    request.input_length = 3 * tools::kTraceBlockTokens - 100;
    trace.push_back(request);
  }
  return trace;
}

CorpusConfig FewWorkers() { return {.workers = 3, .copies = 2, .pool_blocks = 80}; }

TEST(MakeCorpus, IsDeterministicAndValid) {
  const Corpus corpus = MakeCorpus(Trace(), FewWorkers());
  EXPECT_EQ(corpus, MakeCorpus(Trace(), FewWorkers()));
  const auto decoded = DecodeCorpus(EncodeCorpus(corpus));
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(*decoded, corpus);
}

TEST(MakeCorpus, EnginesStoreAbsentBlocksAndRemoveHeldBlocks) {
  const Corpus corpus = MakeCorpus(Trace(), FewWorkers());
  std::map<uint32_t, std::set<uint64_t>> held;
  int64_t queries = 0;
  size_t removed = 0;
  for (const CorpusRecord& record : corpus.records) {
    std::set<uint64_t>& of_worker = held[record.worker];
    if (record.op == CorpusOp::kQuery) ++queries;
    for (const CorpusBlock& block : record.blocks) {
      if (record.op == CorpusOp::kStore) {
        EXPECT_TRUE(of_worker.insert(block.sequence).second);
      }
      if (record.op == CorpusOp::kRemove) {
        EXPECT_EQ(of_worker.erase(block.sequence), 1u);
        ++removed;
      }
    }
  }
  EXPECT_EQ(queries, 120);
  EXPECT_GT(removed, 100u);
  for (const auto& [worker, blocks] : held) {
    EXPECT_GT(blocks.size(), 40u);
    EXPECT_LE(blocks.size(), 200u) << "only blocks in use may exceed the bound of a pool";
  }
}

TEST(MakeCorpus, CopiesOfATraceShareNothing) {
  const Corpus one = MakeCorpus(Trace(), {.workers = 1, .copies = 1});
  const Corpus two = MakeCorpus(Trace(), {.workers = 1, .copies = 2});
  const auto distinct_blocks = [](const Corpus& corpus) {
    std::set<uint64_t> sequences;
    for (const CorpusRecord& record : corpus.records) {
      if (record.op != CorpusOp::kQuery) continue;
      for (const CorpusBlock& block : record.blocks) sequences.insert(block.sequence);
    }
    return sequences.size();
  };
  EXPECT_EQ(distinct_blocks(two), 2 * distinct_blocks(one));
}

}  // namespace
}  // namespace kvcast::bench
