// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "apps/bench/index/commands.h"
#include "apps/bench/index/corpus.h"
#include "apps/bench/index/corpus_events.h"
#include "apps/bench/index/corpus_source.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/samples.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {
namespace {

constexpr char kReplayMethod[] =
    "Issues the queries and the events of a trace as an open loop. A simple engine per worker\n"
    "makes the events (see bench/CORPUS.md). Each item is due at its time, even if earlier\n"
    "items are not done. A late item is issued immediately. One event thread applies all events\n"
    "of a worker. One query thread answers all queries of a worker. The total time ends with\n"
    "the last item, so it includes a backlog. overload: all items are due within 1 ms. keep_up:\n"
    "the rate is --rate, or half of the rate that overload reached. offered: block operations\n"
    "(blocks of prompts, stores and removes) per time of the window. achieved: block operations\n"
    "per total time. kept_up: 1 if all items are done within 1.1 windows. service: the time of\n"
    "the call. from_due: the time from the due time until the call returns. visible: the time\n"
    "from the due time of an event until the index contains the event.";

// The records of one thread, ordered by due time.
struct Lane {
  struct Item {
    uint64_t due;
    uint32_t worker;
    bool query;
    EventBatch batch;
    std::vector<BlockHash> chain;
  };
  std::vector<Item> items;
};

struct LaneTimes {
  Samples service;
  Samples from_due;
};

Lane::Item ItemOf(const CorpusRecord& record, int64_t block_tokens) {
  Lane::Item item{.due = record.due,
                  .worker = record.worker,
                  .query = record.op == CorpusOp::kQuery,
                  .batch = {},
                  .chain = {}};
  if (item.query) {
    MakeChain(record, item.chain);
  } else {
    item.batch = BatchOf(record, block_tokens);
  }
  return item;
}

struct CellResult {
  double offered = 0;   // block operations per second
  double achieved = 0;  // block operations per second of total_s
  double drain_s = 0;   // from the end of the window to the last completion
  double total_s = 0;   // from the start to the last completion
  LaneTimes queries;
  LaneTimes events;
};

class Replay {
 public:
  Replay(const Corpus& corpus, const ReplayBenchOptions& options)
      : corpus_(corpus),
        event_lanes_(static_cast<size_t>(options.event_threads)),
        query_lanes_(static_cast<size_t>(options.query_threads)) {
    for (const CorpusRecord& record : corpus.records) {
      auto& lanes = record.op == CorpusOp::kQuery ? query_lanes_ : event_lanes_;
      lanes[record.worker % lanes.size()].items.push_back(ItemOf(record, corpus.block_tokens));
      std::unordered_set<uint64_t>& held = held_[record.worker];
      for (const CorpusBlock& block : record.blocks) {
        if (record.op == CorpusOp::kStore) held.insert(block.sequence);
        if (record.op == CorpusOp::kRemove) held.erase(block.sequence);
      }
    }
  }

  // Replays the whole corpus within `window_s` seconds, into a new index.
  Result<CellResult> Run(double window_s) {
    PrefixIndex index;
    WorkerConfig config{.name = "worker"};
    config.groups.push_back({.block_size = corpus_.block_tokens});
    for (uint32_t worker = 0; worker < corpus_.workers; ++worker) {
      Status status = index.AddWorker(WorkerId(worker), config);
      if (!status.ok()) return status;
    }
    std::vector<LaneTimes> times(event_lanes_.size() + query_lanes_.size());
    std::atomic<bool> go = false;
    Clock::time_point start;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < times.size(); ++i) {
      const Lane& lane =
          i < event_lanes_.size() ? event_lanes_[i] : query_lanes_[i - event_lanes_.size()];
      threads.emplace_back([&, &lane = lane, &lane_times = times[i], window_s] {
        lane_times.service.Reserve(lane.items.size());
        lane_times.from_due.Reserve(lane.items.size());
        while (!go) std::this_thread::yield();
        RunLane(lane, index, start, window_s, lane_times);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    start = Clock::now();
    go = true;
    for (std::thread& thread : threads) thread.join();
    CellResult result;
    result.total_s = NanosecondsSince(start) * 1e-9;
    result.drain_s = std::max(0.0, result.total_s - window_s);
    const auto ops = static_cast<double>(corpus_.record_blocks());
    result.offered = ops / window_s;
    result.achieved = ops / result.total_s;
    for (size_t i = 0; i < times.size(); ++i) {
      LaneTimes& kind = i < event_lanes_.size() ? result.events : result.queries;
      kind.service.Add(times[i].service);
      kind.from_due.Add(times[i].from_due);
    }
    if (Status status = Check(index); !status.ok()) return status;
    return result;
  }

 private:
  void RunLane(const Lane& lane, PrefixIndex& index, Clock::time_point start, double window_s,
               LaneTimes& times) const {
    const double scale = window_s / static_cast<double>(kCorpusWindow) * 1e9;
    for (const Lane::Item& item : lane.items) {
      const auto due = start + std::chrono::nanoseconds(
                                   static_cast<int64_t>(static_cast<double>(item.due) * scale));
      // The thread sleeps only during long waits, and then spins, because threads wake up late.
      constexpr std::chrono::microseconds kAwake(100);
      if (due - Clock::now() > 2 * kAwake) std::this_thread::sleep_until(due - kAwake);
      while (Clock::now() < due) {
      }
      const auto begin = Clock::now();
      if (item.query) {
        (void)index.Match(item.chain, corpus_.block_tokens,
                          std::ssize(item.chain) * corpus_.block_tokens + 1);
      } else {
        index.Apply(WorkerId(item.worker), item.batch);
      }
      times.service.Add(NanosecondsSince(begin));
      times.from_due.Add(NanosecondsSince(due));
    }
  }
  Status Check(const PrefixIndex& index) const {
    for (uint32_t worker = 0; worker < corpus_.workers; ++worker) {
      const auto it = held_.find(worker);
      const size_t expected = it == held_.end() ? 0 : it->second.size();
      const uint64_t held = index.counters(WorkerId(worker)).residencies;
      if (held == expected) continue;
      return {StatusCode::kInternal, "after the replay worker " + std::to_string(worker) +
                                         " holds " + std::to_string(held) + " blocks, not " +
                                         std::to_string(expected)};
    }
    return {};
  }

  const Corpus& corpus_;
  std::vector<Lane> event_lanes_;
  std::vector<Lane> query_lanes_;
  std::unordered_map<uint32_t, std::unordered_set<uint64_t>> held_;
};

void Print(Report& report, const std::string& name, const CellResult& cell, double window_s) {
  const auto figures = [&](const std::string& kind, const Samples& samples) {
    report.Figure(name + "." + kind + "_p50", samples.median() * 1e-3, "us");
    report.Figure(name + "." + kind + "_p99", samples.Quantile(0.99) * 1e-3, "us");
  };
  report.Figure(name + ".offered", cell.offered * 1e-6, "M ops/s");
  report.Figure(name + ".achieved", cell.achieved * 1e-6, "M ops/s");
  report.Figure(name + ".kept_up", cell.total_s <= 1.1 * window_s ? 1 : 0, "");
  report.Figure(name + ".drain", cell.drain_s, "s");
  figures("lookup_service", cell.queries.service);
  figures("lookup_from_due", cell.queries.from_due);
  figures("apply_service", cell.events.service);
  figures("visible", cell.events.from_due);
}

Status Export(const std::vector<uint8_t>& bytes, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.flush();
  if (out.good()) return {};
  return {StatusCode::kUnavailable, path + ": cannot be written"};
}

}  // namespace

int RunReplayBench(const ReplayBenchOptions& options) {
  const auto corpus = LoadCorpus(options.corpus);
  if (!corpus.ok()) return tools::Fail(corpus.status());
  Report report("replay", kReplayMethod, options.json);
  const std::vector<uint8_t> encoded = EncodeCorpus(*corpus);
  report.Note("corpus sha256 " + CorpusHash(encoded));
  if (!options.export_to.empty()) {
    if (Status status = Export(encoded, options.export_to); !status.ok()) {
      return tools::Fail(status);
    }
    report.Note("written to " + options.export_to);
  }
  report.Figure("replay.records", static_cast<double>(corpus->records.size()), "");
  report.Figure("replay.block_ops", static_cast<double>(corpus->record_blocks()), "");
  if (options.export_only) return report.Finish();
  const auto replay = std::make_unique<Replay>(*corpus, options);
  const auto run = [&](const std::string& name, double window_s) -> Result<CellResult> {
    auto cell = replay->Run(window_s);
    if (cell.ok()) Print(report, name, *cell, window_s);
    return cell;
  };
  constexpr double kOverloadWindow = 1e-3;
  const auto overload = run("replay.overload", kOverloadWindow);
  if (!overload.ok()) return tools::Fail(overload.status());
  const double rate = options.rate > 0 ? options.rate : overload->achieved / 2;
  const auto keep_up = run("replay.keep_up", static_cast<double>(corpus->record_blocks()) / rate);
  if (!keep_up.ok()) return tools::Fail(keep_up.status());
  return report.Finish();
}

}  // namespace kvcast::bench
