// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/cells.h"

#include <algorithm>
#include <functional>
#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "apps/bench/index/cell_index.h"
#include "apps/bench/index/corpus_events.h"
#include "apps/bench/index/process_memory.h"
#include "apps/support/samples.h"

namespace kvcast::bench {
namespace {

constexpr size_t kMemoryRecords = 256;  // records whose batches exist at one time

using Figures = Result<std::vector<CellFigure>>;
using Work = std::function<void()>;

// Runs all works at the same time, each on its own thread. Returns the nanoseconds from the first
// start until the last end. Each thread reads the clock itself, because the calling thread may wake
// up late.
double TimeTogether(const std::vector<Work>& works) {
  std::latch ready(std::ssize(works));
  std::vector<Clock::time_point> starts(works.size());
  std::vector<Clock::time_point> ends(works.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < works.size(); ++i) {
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      starts[i] = Clock::now();
      works[i]();
      ends[i] = Clock::now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto time =
      *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
  return std::chrono::duration<double, std::nano>(time).count();
}

Status CheckHeld(const CellIndex& index, uint64_t expected) {
  const uint64_t held = index.residencies();
  if (held == expected) return {};
  return {StatusCode::kInternal,
          "the index holds " + std::to_string(held) + " blocks, not " + std::to_string(expected)};
}

class CellRun {
 public:
  CellRun(const Corpus& corpus, const CellConfig& config)
      : corpus_(corpus), config_(config), held_(HeldHashes(corpus)) {
    for (const std::vector<uint64_t>& blocks : held_) pairs_ += blocks.size();
  }

  // Applies the whole event stream. Thread i applies the events of the workers whose number modulo
  // `threads` is i.
  Figures Apply(const std::string& name, size_t threads) const {
    double per_block = 0;
    for (int64_t round = 0; round < config_.rounds; ++round) {
      auto index = CellIndex::Make(corpus_, config_.shards);
      if (!index.ok()) return index.status();
      std::vector<std::vector<WorkerBatch>> lanes(threads);
      for (WorkerBatch& batch : AllBatches()) {
        lanes[batch.worker.value % threads].push_back(std::move(batch));
      }
      std::vector<Work> works;
      uint64_t blocks = 0;
      for (const std::vector<WorkerBatch>& lane : lanes) {
        works.emplace_back([&index, &lane] { (*index)->ApplyAll(lane); });
        blocks += BlocksIn(lane);
      }
      per_block = TimeTogether(works) / static_cast<double>(blocks);
      if (Status status = CheckHeld(**index, pairs_); !status.ok()) return status;
    }
    return Figures({{name, per_block, "ns"}});
  }

  // Fills an index with the whole corpus, then removes a share of all blocks.
  Figures Empty(const std::string& name, double share) const {
    const auto target = static_cast<uint64_t>(share * static_cast<double>(pairs_));
    double per_block = 0;
    for (int64_t round = 0; round < config_.rounds; ++round) {
      auto index = CellIndex::Make(corpus_, config_.shards);
      if (!index.ok()) return index.status();
      const std::vector<WorkerBatch> batches = AllBatches();
      const std::vector<WorkerBatch> removes = RemoveBatches(held_, target);
      const uint64_t removed = BlocksIn(removes);
      TimeTogether({[&] { (*index)->ApplyAll(batches); }});
      per_block = TimeTogether({[&] { (*index)->ApplyAll(removes); }}) /
                  static_cast<double>(std::max<uint64_t>(removed, 1));
      if (Status status = CheckHeld(**index, pairs_ - removed); !status.ok()) return status;
    }
    return Figures({{name, per_block, "ns"}});
  }

  Figures Query() const {
    Samples times;
    std::vector<uint64_t> chain;
    const Status status = AtPoints([&](const CellIndex& index, const CorpusRecord& query) {
      MakeChain(query, chain);
      const auto start = Clock::now();
      { const CellIndex::Answer answer = index.Ask(chain); }
      times.Add(NanosecondsSince(start));
    });
    if (!status.ok()) return status;
    const auto queries = static_cast<double>(times.size());
    return Figures({{"cells.query_p50", times.median() * 1e-3, "us"},
                    {"cells.query_p99", times.Quantile(0.99) * 1e-3, "us"},
                    {"cells.query_mean", times.sum() / std::max(queries, 1.0) * 1e-3, "us"},
                    {"cells.queries", queries, ""}});
  }

  Figures Mixed() const {
    double rate = 0;
    for (int64_t round = 0; round < config_.rounds; ++round) {
      auto index = CellIndex::Make(corpus_, config_.shards);
      if (!index.ok()) return index.status();
      const std::vector<WorkerBatch> batches = AllBatches();
      const double nanoseconds =
          TimeTogether({[&] { (*index)->ApplyAll(batches); }, [&] { AskAll(**index); }});
      rate = static_cast<double>(corpus_.record_blocks()) / nanoseconds * 1e3;
      if (Status status = CheckHeld(**index, pairs_); !status.ok()) return status;
    }
    return Figures({{"cells.mixed", rate, "M ops/s"}});
  }

  Figures Memory() const {
    const ProcessMemory before = ReadProcessMemory(true);
    auto index = CellIndex::Make(corpus_, config_.shards);
    if (!index.ok()) return index.status();
    const std::span<const CorpusRecord> records(corpus_.records);
    for (size_t begin = 0; begin < records.size(); begin += kMemoryRecords) {
      const size_t count = std::min(kMemoryRecords, records.size() - begin);
      (*index)->ApplyAll(BatchesOf(records.subspan(begin, count), corpus_.block_tokens));
    }
    const ProcessMemory now = ReadProcessMemory(true);
    if (Status status = CheckHeld(**index, pairs_); !status.ok()) return status;
    const auto pairs = static_cast<double>(std::max<uint64_t>(pairs_, 1));
    const double live = static_cast<double>(now.allocated - before.allocated) / pairs;
    const double resident = static_cast<double>(now.resident - before.resident) / pairs;
    return Figures({{"cells.memory", std::max(live, resident), "bytes"},
                    {"cells.memory_live", live, "bytes"},
                    {"cells.memory_resident", resident, "bytes"},
                    {"cells.pairs", static_cast<double>(pairs_), ""}});
  }

  Figures Scores() const {
    ScoreSum sum;
    uint64_t queries = 0;
    std::vector<uint64_t> chain;
    const Status status = AtPoints([&](const CellIndex& index, const CorpusRecord& query) {
      MakeChain(query, chain);
      index.ForEachScore(index.Ask(chain), [&](uint32_t worker, int64_t blocks) {
        sum.Add(queries, worker, static_cast<uint64_t>(blocks));
      });
      ++queries;
    });
    if (!status.ok()) return status;
    return Figures({{"cells.checksum", static_cast<double>(sum.checksum()), ""},
                    {"cells.scores", static_cast<double>(sum.scores()), ""},
                    {"cells.score_blocks", static_cast<double>(sum.blocks()), ""},
                    {"cells.queries", static_cast<double>(queries), ""}});
  }

 private:
  std::vector<WorkerBatch> AllBatches() const {
    return BatchesOf(corpus_.records, corpus_.block_tokens);
  }

  // Replays the corpus in steps that end at the points. In each step, another thread first applies
  // the events of the step. Then this thread calls `on_query` for each query of the step.
  Status AtPoints(
      const std::function<void(const CellIndex&, const CorpusRecord&)>& on_query) const {
    auto index = CellIndex::Make(corpus_, config_.shards);
    if (!index.ok()) return index.status();
    const std::span<const CorpusRecord> records(corpus_.records);
    const size_t step = records.size() / static_cast<size_t>(config_.points) + 1;
    for (size_t begin = 0; begin < records.size(); begin += step) {
      const auto part = records.subspan(begin, std::min(step, records.size() - begin));
      const std::vector<WorkerBatch> batches = BatchesOf(part, corpus_.block_tokens);
      TimeTogether({[&] { (*index)->ApplyAll(batches); }});
      for (const CorpusRecord& record : part) {
        if (IsQuery(record)) on_query(**index, record);
      }
    }
    return CheckHeld(**index, pairs_);
  }
  void AskAll(const CellIndex& index) const {
    std::vector<uint64_t> chain;
    for (const CorpusRecord& record : corpus_.records) {
      if (!IsQuery(record)) continue;
      MakeChain(record, chain);
      (void)index.Ask(chain);
    }
  }
  static bool IsQuery(const CorpusRecord& record) {
    return record.op == CorpusOp::kQuery && !record.blocks.empty();
  }

  const Corpus& corpus_;
  const CellConfig config_;
  const std::vector<std::vector<uint64_t>> held_;
  uint64_t pairs_ = 0;
};

}  // namespace

Result<std::vector<CellFigure>> MeasureCell(const Corpus& corpus, std::string_view cell,
                                            const CellConfig& config) {
  const CellRun run(corpus, config);
  const std::string name = "cells." + std::string(cell);
  if (cell == "apply") return run.Apply(name, 1);
  if (cell == "apply2") return run.Apply(name, 2);
  if (cell == "quarter") return run.Empty(name, 0.25);
  if (cell == "drain") return run.Empty(name, 1);
  if (cell == "query") return run.Query();
  if (cell == "mixed") return run.Mixed();
  if (cell == "memory") return run.Memory();
  if (cell == "scores") return run.Scores();
  return Status(StatusCode::kInvalidArgument, "no cell has the name " + std::string(cell));
}

}  // namespace kvcast::bench
