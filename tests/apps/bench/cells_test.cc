// Tests of the cells: measurements that compare kvcast's index with other indexes. The scores equal
// the scores of plain sets of blocks. Every cell returns figures. The batches that empty the
// workers have the documented order.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "apps/bench/index/corpus_events.h"
#include "apps/bench/index/corpus_maker.h"

namespace kvcast::bench {
namespace {

Corpus FewRequests() {
  std::vector<tools::TraceRequest> trace;
  for (int64_t i = 0; i < 90; ++i) {
    tools::TraceRequest request{.arrival_s = 0.02 * static_cast<double>(i), .output_length = 300};
    request.block_ids = {0, i % 7 + 1, 100 + i % 40};
    request.input_length = 3 * tools::kTraceBlockTokens - 100;
    trace.push_back(request);
  }
  return MakeCorpus(trace, {.workers = 5, .copies = 2, .pool_blocks = 80});
}

std::map<std::string, double> Measure(const Corpus& corpus, const char* cell,
                                      const CellConfig& config = {.rounds = 1}) {
  const auto figures = MeasureCell(corpus, cell, config);
  EXPECT_TRUE(figures.ok()) << cell << ": " << figures.status().message();
  std::map<std::string, double> values;
  if (!figures.ok()) return values;
  for (const CellFigure& figure : *figures) values[figure.name] = figure.value;
  return values;
}

using Held = std::map<uint32_t, std::set<uint64_t>>;

void Apply(const CorpusRecord& record, Held& held) {
  for (const CorpusBlock& block : record.blocks) {
    if (record.op == CorpusOp::kStore) held[record.worker].insert(block.sequence);
    if (record.op == CorpusOp::kRemove) held[record.worker].erase(block.sequence);
  }
}

// Returns the number of leading blocks of the query that are in the set.
uint64_t ScoreOf(const CorpusRecord& query, const std::set<uint64_t>& held) {
  uint64_t blocks = 0;
  while (blocks < query.blocks.size() && held.contains(query.blocks[blocks].sequence)) ++blocks;
  return blocks;
}

ScoreSum NaiveScores(const Corpus& corpus, size_t points) {
  ScoreSum sum;
  Held held;
  uint64_t query = 0;
  const size_t step = corpus.records.size() / points + 1;
  for (size_t begin = 0; begin < corpus.records.size(); begin += step) {
    const size_t end = std::min(begin + step, corpus.records.size());
    for (size_t i = begin; i < end; ++i) Apply(corpus.records[i], held);
    for (size_t i = begin; i < end; ++i) {
      if (corpus.records[i].op != CorpusOp::kQuery) continue;
      for (const auto& [worker, blocks] : held) {
        const uint64_t score = ScoreOf(corpus.records[i], blocks);
        if (score > 0) sum.Add(query, worker, score);
      }
      ++query;
    }
  }
  return sum;
}

TEST(Cells, ScoresEqualTheScoresOfPlainSets) {
  const Corpus corpus = FewRequests();
  for (const int64_t points : {1, 7, 40}) {
    const ScoreSum naive = NaiveScores(corpus, static_cast<size_t>(points));
    auto figures = Measure(corpus, "scores", {.rounds = 1, .points = points});
    EXPECT_EQ(figures["cells.checksum"], static_cast<double>(naive.checksum())) << points;
    EXPECT_EQ(figures["cells.scores"], static_cast<double>(naive.scores())) << points;
    EXPECT_EQ(figures["cells.score_blocks"], static_cast<double>(naive.blocks())) << points;
    EXPECT_EQ(figures["cells.queries"], 180) << points;
    EXPECT_GT(naive.scores(), 180u) << points;
  }
}

TEST(Cells, ChecksumDependsOnEachScore) {
  ScoreSum a, b, c;
  a.Add(0, 1, 2);
  a.Add(1, 3, 4);
  b.Add(1, 3, 4);
  b.Add(0, 1, 2);
  c.Add(0, 1, 2);
  c.Add(1, 4, 3);
  EXPECT_EQ(a.checksum(), b.checksum());
  EXPECT_NE(a.checksum(), c.checksum());
  EXPECT_EQ(static_cast<uint64_t>(static_cast<double>(a.checksum())), a.checksum());
}

TEST(Cells, EveryCellHasFigures) {
  const Corpus corpus = FewRequests();
  for (const char* cell : kCellNames) {
    for (const auto& [name, value] : Measure(corpus, cell)) {
      EXPECT_GE(value, 0) << name;
    }
    EXPECT_FALSE(Measure(corpus, cell).empty()) << cell;
  }
  EXPECT_EQ(MeasureCell(corpus, "none", {}).status().code(), StatusCode::kInvalidArgument);
}

TEST(CorpusEvents, WorkersAreEmptiedInTurnsFromTheirYoungestBlock) {
  const Corpus corpus = FewRequests();
  Held held;
  for (const CorpusRecord& record : corpus.records) Apply(record, held);
  size_t pairs = 0;
  for (const auto& [worker, blocks] : held) pairs += blocks.size();
  const auto order = HeldHashes(corpus);
  const auto batches = RemoveBatches(order, pairs);
  EXPECT_EQ(BlocksIn(batches), pairs);
  EXPECT_GE(BlocksIn(RemoveBatches(order, pairs / 4)), pairs / 4);
  EXPECT_LT(BlocksIn(RemoveBatches(order, pairs / 4)), pairs / 4 + 32);
  EXPECT_TRUE(RemoveBatches(order, 0).empty());
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(batches[i].worker, WorkerId(i));
  for (const WorkerBatch& batch : batches) {
    const auto& removed = std::get<BlockRemoved>(batch.batch.events.at(0));
    EXPECT_LE(removed.block_hashes.size(), 32u);
    for (const BlockHash& hash : removed.block_hashes) {
      EXPECT_EQ(held[batch.worker.value].erase(hash.integer()), 1u);
    }
  }
  for (const auto& [worker, blocks] : held) EXPECT_TRUE(blocks.empty()) << worker;
}

TEST(CorpusEvents, TheYoungestBlockIsFirst) {
  const Corpus corpus{.workers = 2,
                      .block_tokens = 16,
                      .records = {{.op = CorpusOp::kStore, .blocks = {{1, 1}, {2, 2}, {3, 3}}},
                                  {.worker = 1, .op = CorpusOp::kStore, .blocks = {{1, 1}}},
                                  {.op = CorpusOp::kRemove, .blocks = {{3, 3}}},
                                  {.op = CorpusOp::kStore, .parent = 1, .blocks = {{4, 4}}},
                                  {.op = CorpusOp::kStore, .parent = 2, .blocks = {{3, 3}}}}};
  EXPECT_EQ(HeldHashes(corpus), (std::vector<std::vector<uint64_t>>{{3, 4, 2, 1}, {1}}));
}

}  // namespace
}  // namespace kvcast::bench
