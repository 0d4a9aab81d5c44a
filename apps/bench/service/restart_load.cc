// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/restart_load.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/service/event_load.h"
#include "apps/bench/service/prompt_source.h"
#include "apps/support/steady_now.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {
namespace {

class RestartLoad {
 public:
  explicit RestartLoad(const RestartConfig& config) : config_(config) {}

  bool Open() {
    for (int i = 0; i < config_.sources; ++i) {
      auto publisher = Publisher::Create({.endpoint = "tcp://127.0.0.1:0",
                                          .replay_endpoint = "tcp://127.0.0.1:0",
                                          .extension = config_.extension,
                                          .shares_threads = true});
      if (!publisher.ok()) return false;
      publishers_.push_back(std::move(publisher).value());
      sources_.emplace_back(i, static_cast<uint64_t>(config_.held_blocks));
      while (!sources_.back().full()) {
        if (!Publish(static_cast<size_t>(i), kFillBlocks)) return false;
      }
    }
    return true;
  }

  bool PutEndpoints(const PipeEnd& out) const {
    return std::ranges::all_of(
        publishers_, [&](const auto& publisher) { return out.Put(EndpointsOf(*publisher)); });
  }

  // Publishes until `in` is ready. A late batch is published immediately. Returns the rate; -1: a
  // batch cannot be published.
  double PublishUntil(const PipeEnd& in) {
    const double rate = static_cast<double>(config_.sources) * config_.batches_per_s;
    const double start = SteadyNow();
    uint64_t count = 0;
    for (; !in.Ready(); ++count) {
      const double due = start + static_cast<double>(count) / rate;
      if (const double early = due - SteadyNow(); early > 0) {
        std::this_thread::sleep_for(std::chrono::duration<double>(early));
      }
      const auto blocks = static_cast<uint64_t>(config_.blocks_per_batch / 2);
      if (!Publish(next_++ % sources_.size(), blocks)) return -1;
    }
    return static_cast<double>(count) / (SteadyNow() - start);
  }

  bool PutCounts(const PipeEnd& out) const {
    for (size_t i = 0; i < sources_.size(); ++i) {
      const SourceCount count{sources_[i].stored(), sources_[i].removed(),
                              publishers_[i]->next_seq().value};
      if (!out.Put(count)) return false;
    }
    return true;
  }

 private:
  bool Publish(size_t source, uint64_t blocks) {
    return publishers_[source]->Publish(sources_[source].Next(blocks)).ok();
  }

  const RestartConfig& config_;
  std::vector<std::unique_ptr<Publisher>> publishers_;
  std::vector<PromptSource> sources_;
  uint64_t next_ = 0;
};

}  // namespace

int PublishForRestarts(const RestartConfig& config, const PipeEnd& in, const PipeEnd& out) {
  RestartLoad load(config);
  if (!load.Open() || !load.PutEndpoints(out)) return 1;
  for (char byte = 0; in.Get(byte, kCommandPatienceMs);) {
    const double rate = load.PublishUntil(in);
    if (rate < 0 || !in.Get(byte, 0) || !out.Put(rate) || !load.PutCounts(out)) return 1;
  }
  return 0;
}

}  // namespace kvcast::tools
