// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/corpus_maker.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <list>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "apps/bench/index/churn.h"

namespace kvcast::bench {
namespace {

// Ten times the speed of a typical engine.
constexpr double kPrefillTokensPerSecond = 100'000;
constexpr double kOutputTokensPerSecond = 500;
constexpr uint64_t kLocalSeed = 1337;

uint64_t LocalHash(uint64_t content, int64_t tokens) {
  const std::vector<uint32_t> ids(static_cast<size_t>(tokens), static_cast<uint32_t>(content));
  return XXH3_64bits_withSeed(ids.data(), ids.size() * sizeof(uint32_t), kLocalSeed);
}

uint64_t SequenceHash(const uint64_t* parent, uint64_t local) {
  if (parent == nullptr) return local;
  const uint64_t both[2] = {*parent, local};
  return XXH3_64bits(both, sizeof(both));
}

void Extend(std::vector<CorpusBlock>& chain, uint64_t local) {
  const uint64_t* const parent = chain.empty() ? nullptr : &chain.back().sequence;
  chain.push_back({local, SequenceHash(parent, local)});
}

struct Request {
  double arrival_s = 0;
  size_t prompt_blocks = 0;
  int64_t output_tokens = 0;
  std::vector<CorpusBlock> chain;  // prompt, then output
};

// All tokens of a trace block are the id of the block. The corpus blocks inside one trace block
// therefore have equal local hashes.
Request MakeRequest(const tools::TraceRequest& from, uint64_t id_offset, uint64_t number,
                    int64_t block_tokens) {
  Request request{.arrival_s = from.arrival_s, .output_tokens = from.output_length, .chain = {}};
  const int64_t per_trace_block = tools::kTraceBlockTokens / block_tokens;
  request.prompt_blocks = static_cast<size_t>(from.input_length / block_tokens);
  for (size_t i = 0; i < request.prompt_blocks; ++i) {
    const auto id = static_cast<uint64_t>(from.block_ids[i / static_cast<size_t>(per_trace_block)]);
    Extend(request.chain, LocalHash(id + id_offset, block_tokens));
  }
  const int64_t tail = from.input_length % block_tokens;
  const int64_t output_blocks = (tail + from.output_length) / block_tokens;
  for (int64_t i = 0; i < output_blocks; ++i) {
    Extend(request.chain, Mix64(~Mix64(number) + static_cast<uint64_t>(i)));
  }
  return request;
}

// One worker. Times are seconds of the trace.
class Engine {
 public:
  Engine(uint32_t worker, const CorpusConfig& config, std::vector<CorpusRecord>& records,
         std::vector<double>& times)
      : worker_(worker),
        pool_blocks_(static_cast<size_t>(config.pool_blocks)),
        block_tokens_(static_cast<double>(config.block_tokens)),
        records_(records),
        times_(times) {}

  void Run(std::vector<Request>& requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      steps_.push({requests[i].arrival_s, count_++, i, Step::kArrive, 0});
    }
    while (!steps_.empty()) {
      const Step step = steps_.top();
      steps_.pop();
      Do(step, requests[step.request]);
    }
  }

 private:
  struct Step {
    enum Kind : uint8_t { kArrive, kComputed, kOutput, kFinish };
    double time;
    uint64_t order;
    size_t request;
    Kind kind;
    size_t block;  // of kOutput: position of the block in the chain

    // The order is reversed, because a priority queue has the largest element on top.
    bool operator<(const Step& other) const {
      return std::tie(time, order) > std::tie(other.time, other.order);
    }
  };
  struct Held {
    CorpusBlock block;
    int64_t users = 0;
    std::list<uint64_t>::iterator unused;  // valid if users is 0
  };

  void Do(const Step& step, const Request& request) {
    const std::span<const CorpusBlock> chain(request.chain);
    switch (step.kind) {
      case Step::kArrive:
        return Arrive(step, request);
      case Step::kComputed:
        return UseBlocks(step.time, chain.first(request.prompt_blocks), 0);
      case Step::kOutput:
        return UseBlocks(step.time, chain.first(step.block + 1), step.block);
      case Step::kFinish:
        for (size_t i = chain.size(); i-- > 0;) Release(chain[i].sequence);
    }
  }
  void Arrive(const Step& step, const Request& request) {
    const std::span<const CorpusBlock> chain(request.chain);
    const size_t prompt = request.prompt_blocks;
    const auto query = chain.first(prompt);
    AddRecord(step.time, CorpusOp::kQuery, 0, {query.begin(), query.end()});
    size_t hit = 0;
    while (hit < prompt && held_.contains(chain[hit].sequence)) ++hit;
    const double tokens = static_cast<double>(prompt - hit) * block_tokens_;
    const double computed = step.time + tokens / kPrefillTokensPerSecond;
    const double finished =
        computed + static_cast<double>(request.output_tokens) / kOutputTokensPerSecond;
    steps_.push({computed, count_++, step.request, Step::kComputed, 0});
    const size_t output = chain.size() - prompt;
    for (size_t i = 0; i < output; ++i) {
      const double part = static_cast<double>(i + 1) / static_cast<double>(output);
      steps_.push({computed + part * (finished - computed), count_++, step.request, Step::kOutput,
                   prompt + i});
    }
    steps_.push({finished, count_++, step.request, Step::kFinish, 0});
  }

  // The request begins to use its blocks from `first` on. The engine stores the new blocks, with
  // one record for each run of new blocks.
  void UseBlocks(double time, std::span<const CorpusBlock> chain, size_t first) {
    std::vector<CorpusBlock> evicted;
    std::vector<std::pair<size_t, size_t>> runs;  // begin, end
    for (size_t i = first; i < chain.size(); ++i) {
      const auto [it, is_new] = held_.try_emplace(chain[i].sequence);
      Held& held = it->second;
      if (is_new) {
        held.block = chain[i];
        if (runs.empty() || runs.back().second != i) runs.emplace_back(i, i);
        runs.back().second = i + 1;
      } else if (held.users == 0) {
        unused_.erase(held.unused);
      }
      ++held.users;
    }
    while (held_.size() > pool_blocks_ && !unused_.empty()) {
      const auto it = held_.find(unused_.front());
      unused_.pop_front();
      evicted.push_back(it->second.block);
      held_.erase(it);
    }
    if (!evicted.empty()) AddRecord(time, CorpusOp::kRemove, 0, std::move(evicted));
    for (const auto& [begin, end] : runs) {
      const uint64_t parent = begin == 0 ? 0 : chain[begin - 1].sequence;
      const auto run = chain.subspan(begin, end - begin);
      AddRecord(time, CorpusOp::kStore, parent, {run.begin(), run.end()});
    }
  }
  void Release(uint64_t sequence) {
    Held& held = held_.at(sequence);
    if (--held.users > 0) return;
    held.unused = unused_.insert(unused_.end(), sequence);
  }
  void AddRecord(double time, CorpusOp op, uint64_t parent, std::vector<CorpusBlock> blocks) {
    if (blocks.empty()) return;
    records_.push_back(
        {.due = 0, .worker = worker_, .op = op, .parent = parent, .blocks = std::move(blocks)});
    times_.push_back(time);
  }

  const uint32_t worker_;
  const size_t pool_blocks_;
  const double block_tokens_;
  std::vector<CorpusRecord>& records_;
  std::vector<double>& times_;
  std::priority_queue<Step> steps_;
  uint64_t count_ = 0;
  std::unordered_map<uint64_t, Held> held_;
  std::list<uint64_t> unused_;  // the next block to evict is first
};

// Scales the times of one worker's records from seconds to the window (CorpusRecord::due).
void ScaleTimes(std::span<CorpusRecord> records, std::span<const double> times) {
  if (records.empty()) return;
  const double begin = times.front();
  const double length = std::max(times.back() - begin, 1e-9);
  for (size_t i = 0; i < records.size(); ++i) {
    const double part = std::clamp((times[i] - begin) / length, 0.0, 1.0);
    records[i].due = static_cast<uint64_t>(part * static_cast<double>(kCorpusWindow));
  }
}

}  // namespace

Corpus MakeCorpus(const std::vector<tools::TraceRequest>& trace, const CorpusConfig& config) {
  uint64_t ids = 0;
  for (const tools::TraceRequest& request : trace) {
    for (const int64_t id : request.block_ids) {
      ids = std::max(ids, static_cast<uint64_t>(id) + 1);
    }
  }
  const auto workers = static_cast<uint64_t>(config.workers);
  std::vector<std::vector<std::pair<size_t, uint64_t>>> of_worker(workers);
  for (uint64_t copy = 0; copy < static_cast<uint64_t>(config.copies); ++copy) {
    for (size_t i = 0; i < trace.size(); ++i) {
      const uint64_t number = copy * trace.size() + i;
      of_worker[Mix64(config.seed + Mix64(number)) % workers].emplace_back(i, copy);
    }
  }
  Corpus corpus{.workers = static_cast<uint32_t>(config.workers),
                .block_tokens = static_cast<uint32_t>(config.block_tokens),
                .records = {}};
  std::vector<double> times;
  for (uint32_t worker = 0; worker < workers; ++worker) {
    std::vector<Request> requests;
    for (const auto& [row, copy] : of_worker[worker]) {
      requests.push_back(
          MakeRequest(trace[row], ids * copy, copy * trace.size() + row, config.block_tokens));
    }
    const size_t begin = corpus.records.size();
    times.clear();
    Engine(worker, config, corpus.records, times).Run(requests);
    ScaleTimes(std::span(corpus.records).subspan(begin), times);
  }
  std::stable_sort(corpus.records.begin(), corpus.records.end(),
                   [](const CorpusRecord& a, const CorpusRecord& b) {
                     const auto key = [](const CorpusRecord& record) {
                       return std::tuple(record.due, record.op != CorpusOp::kQuery, record.worker);
                     };
                     return key(a) < key(b);
                   });
  return corpus;
}

}  // namespace kvcast::bench
