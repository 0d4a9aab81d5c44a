// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/restarted_router.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/bench/machine/slow_times.h"
#include "apps/bench/machine/speed_probe.h"
#include "apps/bench/service/freshness_prompts.h"
#include "apps/bench/service/http_load.h"
#include "apps/bench/service/restart_load.h"
#include "apps/support/steady_now.h"
#include "router/service/discovery/curl_client.h"
#include "router/service/router_service.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"

namespace kvcast::tools {
namespace {

using router::Query;
using router::RouterOptions;
using router::RouterService;
using router::WorkerAnswer;

constexpr int kAnswerSeconds = 60;
constexpr int64_t kJoinMs = 60'000;
constexpr uint64_t kQueriedBlocks = 64;
constexpr int64_t kAuditMs = 2000;  // short, so that a check takes only seconds

template <typename Condition>
bool WaitUntil(const Condition& condition) {
  const double deadline = SteadyNow() + kAnswerSeconds;
  while (!condition()) {
    if (SteadyNow() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string SourceName(size_t source) { return "source-" + std::to_string(source); }

// The sum of the values of all series of a metric.
double SumOf(std::string_view page, const std::string& metric) {
  double sum = 0;
  const std::string begin = "\n" + metric;
  for (size_t at = page.find(begin); at != std::string_view::npos; at = page.find(begin, at + 1)) {
    const std::string_view line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
    if (line[metric.size()] != ' ' && line[metric.size()] != '{') continue;
    sum += std::strtod(std::string(line.substr(line.rfind(' '))).c_str(), nullptr);
  }
  return sum;
}

struct Interval {
  double begin = 0;  // SteadyNow()
  double end = 0;
};

// The times of the saves, read from the log of the router.
class SaveTimes {
 public:
  SaveTimes()
      : log_({.level = LogLevel::kDebug,
              .format = LogFormat::kText,
              .output = [this](std::string_view line) {
                Take(line);
                return true;
              }}) {}

  Logger& log() { return log_; }
  std::vector<Interval> saves() {
    log_.Flush();
    const MutexLock lock(mutex_);
    return saves_;
  }

 private:
  void Take(std::string_view line) {
    constexpr std::string_view kSeconds = " seconds=";
    const size_t at = line.find(kSeconds);
    if (line.find("state_saved") == std::string_view::npos || at == std::string_view::npos) return;
    const double end = SteadyNow();
    const std::string seconds(line.substr(at + kSeconds.size()));
    const MutexLock lock(mutex_);
    saves_.push_back({end - std::strtod(seconds.c_str(), nullptr), end});
  }

  Mutex mutex_;
  std::vector<Interval> saves_ KV_GUARDED_BY(mutex_);
  Logger log_;  // last: its thread uses the other members
};

// The prompts that a source has stored, in order.
class StoredPrompts {
 public:
  explicit StoredPrompts(int source) : sequence_(source) {}

  // Returns a random prompt within the blocks from `first` to `end`. An empty span: no prompt is
  // within these blocks.
  PromptSpan Pick(uint64_t first, uint64_t end, std::mt19937_64& random) {
    while (spans_.empty() || spans_.back().end < end) spans_.push_back(sequence_.Next());
    const auto begins = std::ranges::lower_bound(spans_, first, {}, &PromptSpan::begin);
    const auto ends = std::ranges::upper_bound(spans_, end, {}, &PromptSpan::end);
    if (begins >= ends) return {};
    return begins[static_cast<ptrdiff_t>(random() % static_cast<uint64_t>(ends - begins))];
  }

 private:
  PromptSequence sequence_;
  std::vector<PromptSpan> spans_;
};

class RestartedRouter {
 public:
  RestartedRouter(const RestartConfig& config, uint64_t seed)
      : config_(config), random_(seed), stored_(static_cast<size_t>(config.sources)) {
    for (int i = 0; i < config.sources; ++i) prompts_.emplace_back(i);
  }

  Status Start(const std::vector<LoadEndpoints>& endpoints, const RouterStart& start) {
    RouterOptions options;
    options.admin_http.emplace();
    options.make_client = router::MakeCurlClient;
    if (start.peer_port > 0) {
      options.peer.url = "http://127.0.0.1:" + std::to_string(start.peer_port);
      options.peer.timeout_ms = kJoinMs;
    }
    for (size_t i = 0; i < endpoints.size(); ++i) {
      router::WorkerRegistration source;
      source.worker.name = SourceName(i);
      source.worker.groups = {{.block_size = kFreshnessBlockSize}};
      source.worker.hash_block_size = kFreshnessBlockSize;
      source.worker.hit_reports = HitReports::kNever;
      source.endpoint = endpoints[i].endpoint.data();
      source.replay_endpoint = endpoints[i].replay.data();
      options.sources.push_back(std::move(source));
    }
    options.subscriber.audit_interval_ms = kAuditMs;
    if (start.saves) options.state = {.folder = config_.folder, .period_s = config_.save_period_s};
    options.on_applied = [this](const router::FleetWorker& worker,
                                const router::AppliedBatch& applied) {
      for (const Event& event : applied.batch.events) {
        const auto* stored = std::get_if<BlockStored>(&event);
        if (stored != nullptr) stored_[worker.id.value] += stored->block_hashes.size();
      }
    };
    options.log = &times_.log();
    auto service = RouterService::Start(options);
    if (!service.ok()) return service.status();
    service_ = std::move(service).value();
    serves_at_ = SteadyNow();
    return {};
  }

  RouterStarted AwaitAnswers() {
    const bool answers = WaitUntil([this] {
      const auto asked = service_->Ask(QueryFor(0, {0, 1}));
      return asked.ok() && std::ranges::all_of(*asked, [](const WorkerAnswer& worker) {
               return worker.answer.exact && worker.answer.weight == 1;
             });
    });
    const double now = SteadyNow();
    const std::string page = Page();
    const double restored = SumOf(page, "kvcast_state_workers_restored_total") +
                            SumOf(page, "kvcast_peer_join_workers_restored_total");
    return {.serves_at = serves_at_,
            .answers_at = answers ? now : 0,
            .restored = static_cast<uint64_t>(restored),
            .join_bytes = static_cast<int64_t>(SumOf(page, "kvcast_peer_join_bytes")),
            .join_seconds = SumOf(page, "kvcast_peer_join_seconds"),
            .admin_port = service_->admin_port()};
  }

  RouterChecked Check(const std::vector<SourceCount>& counts) {
    RouterChecked checked;
    checked.complete = WaitUntil([&] { return HasAll(counts); }) && AwaitDigests();
    for (int i = 0; i < config_.prompts; ++i) AskOne(counts, checked);
    for (const router::WorkerReport& worker : service_->workers()) {
      checked.dropped += worker.stream.resets;
      checked.digest_checks += worker.stream.digest_checks;
      checked.digest_mismatches += worker.stream.digest_mismatches;
    }
    return checked;
  }

  SavesResult Measure(const std::vector<SourceCount>& counts, const PipeEnd& out) {
    WaitUntil([&] { return HasAll(counts); });
    for (size_t i = 0; i < counts.size(); ++i) stored_[i] = counts[i].stored;
    out.Put(char{1});
    bench::SpeedProbe speed;
    std::vector<Interval> queries;
    for (const double end = SteadyNow() + config_.query_seconds; SteadyNow() < end;) {
      for (int i = 0; i < 10; ++i) {
        if (const auto query = AskHeld()) queries.push_back(*query);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ResultOf(queries, bench::SlowTimes(speed.Stop()));
  }

 private:
  static Query QueryFor(int source, PromptSpan span) {
    Query query;
    query.by_tokens = false;
    query.hash_block_size = kFreshnessBlockSize;
    for (uint64_t block = span.begin; block < span.end; ++block) {
      query.hashes.emplace_back(HashOfBlock(source, block));
    }
    // The engine always computes at least the last token.
    query.prompt_tokens = static_cast<int64_t>(query.hashes.size()) * kFreshnessBlockSize + 1;
    return query;
  }

  std::string Page() const {
    auto page = HttpGet(service_->http_port(), "/metrics");
    return page.ok() ? std::move(page).value() : "";
  }

  bool HasAll(const std::vector<SourceCount>& counts) const {
    const auto workers = service_->workers();
    for (size_t i = 0; i < counts.size(); ++i) {
      if (workers[i].stream.next_seq < counts[i].batches) return false;
      if (workers[i].state != SourceState::kSynced) return false;
    }
    return true;
  }

  // Waits for one more digest check of each source.
  bool AwaitDigests() const {
    if (!config_.extension) return true;
    std::vector<uint64_t> before;
    for (const auto& worker : service_->workers()) before.push_back(worker.stream.digest_checks);
    return WaitUntil([&] {
      const auto workers = service_->workers();
      for (size_t i = 0; i < workers.size(); ++i) {
        if (workers[i].stream.digest_checks == before[i]) return false;
      }
      return true;
    });
  }

  // Sends a query for a random prompt of a random source. About every second prompt was removed in
  // part or completely.
  void AskOne(const std::vector<SourceCount>& counts, RouterChecked& checked) {
    const auto source = static_cast<int>(random_() % counts.size());
    const SourceCount& count = counts[static_cast<size_t>(source)];
    const bool held = random_() % 2 == 0;
    const uint64_t oldest = held ? count.removed : count.removed / 2;
    const uint64_t newest = held ? count.stored : count.removed + kLongestPromptBlocks;
    const PromptSpan span = PromptsOf(source).Pick(oldest, std::min(newest, count.stored), random_);
    if (span.begin == span.end) return;
    const bool reusable = span.begin >= count.removed;
    const auto tokens = static_cast<int64_t>(span.end - span.begin) * kFreshnessBlockSize;
    ++checked.asked;
    const auto answers = service_->Ask(QueryFor(source, span));
    if (!answers.ok()) {
      ++checked.wrong;
      return;
    }
    bool right = true;
    bool exact = true;
    for (const WorkerAnswer& worker : *answers) {
      const bool holds = reusable && worker.answer.name == SourceName(static_cast<size_t>(source));
      right = right && worker.answer.match.gpu_tokens == (holds ? tokens : 0);
      exact = exact && worker.answer.exact;
    }
    checked.wrong += right ? 0 : 1;
    checked.inexact += right && !exact ? 1 : 0;
  }

  StoredPrompts& PromptsOf(int source) { return prompts_[static_cast<size_t>(source)]; }

  // Sends a query for the first kQueriedBlocks blocks of a held prompt. nullopt: no held prompt is
  // long enough.
  std::optional<Interval> AskHeld() {
    constexpr int kTries = 100;
    constexpr uint64_t kMargin = 2048;  // blocks that may be removed before the query
    const auto source = static_cast<int>(random_() % stored_.size());
    const uint64_t stored = stored_[static_cast<size_t>(source)];
    const uint64_t removed = stored - static_cast<uint64_t>(config_.held_blocks);
    PromptSpan span;
    for (int i = 0; i < kTries && span.end - span.begin < kQueriedBlocks; ++i) {
      span = PromptsOf(source).Pick(removed + kMargin, stored, random_);
    }
    if (span.end - span.begin < kQueriedBlocks) return std::nullopt;
    span.end = span.begin + kQueriedBlocks;
    const Query query = QueryFor(source, span);
    const double begin = SteadyNow();
    (void)service_->Ask(query);
    return Interval{begin, SteadyNow()};
  }

  SavesResult ResultOf(const std::vector<Interval>& queries, const bench::SlowTimes& slow) {
    SavesResult result;
    const std::vector<Interval> saves = times_.saves();
    bench::Samples quiet;
    bench::Samples saving;
    for (const Interval& query : queries) {
      if (slow.Overlaps(query.begin, query.end)) continue;
      const bool in_save = std::ranges::any_of(saves, [&](const Interval& save) {
        return query.begin < save.end && save.begin < query.end;
      });
      (in_save ? saving : quiet).Add(query.end - query.begin);
    }
    for (const Interval& save : saves) {
      result.seconds = std::max(result.seconds, save.end - save.begin);
    }
    const std::string page = Page();
    result.residencies = static_cast<uint64_t>(SumOf(page, "kvcast_index_residencies"));
    result.saves = saves.size();
    result.bytes = static_cast<int64_t>(SumOf(page, "kvcast_state_bytes"));
    result.pause_seconds = SumOf(page, "kvcast_state_save_pause_seconds");
    result.quiet = QuantilesOf(quiet);
    result.saving = QuantilesOf(saving);
    result.slow_share = slow.share();
    result.quiet_queries = quiet.size();
    result.saving_queries = saving.size();
    return result;
  }

  const RestartConfig& config_;
  double serves_at_ = 0;
  std::mt19937_64 random_;
  std::vector<StoredPrompts> prompts_;         // by source
  std::vector<std::atomic<uint64_t>> stored_;  // by source: stored blocks; valid from Measure on
  SaveTimes times_;
  std::unique_ptr<RouterService> service_;  // destroyed first: its threads use the other members
};

}  // namespace

int RunRestartedRouter(const RestartConfig& config, const std::vector<LoadEndpoints>& endpoints,
                       const RouterStart& start, const PipeEnd& in, const PipeEnd& out) {
  RestartedRouter router(config, start.seed);
  if (!router.Start(endpoints, start).ok() || !out.Put(router.AwaitAnswers())) return 1;
  std::vector<SourceCount> counts(endpoints.size());
  for (RouterCommand command{}; in.Get(command, kCommandPatienceMs);) {
    for (SourceCount& count : counts) {
      if (!in.Get(count, kPipeTimeoutMs)) return 1;
    }
    const bool written = command == RouterCommand::kCheck ? out.Put(router.Check(counts))
                                                          : out.Put(router.Measure(counts, out));
    if (!written) return 1;
  }
  return 0;
}

}  // namespace kvcast::tools
