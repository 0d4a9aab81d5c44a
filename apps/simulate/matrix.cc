// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include "apps/simulate/random.h"
#include "apps/simulate/workload_sources.h"

namespace kvcast::simulate {
namespace {

constexpr int kResamples = 2000;

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
  return parts;
}

struct Arms {
  std::vector<RuleChoice> rules;
  std::vector<IndexKind> kinds;
};

Result<Arms> ParseArms(const SimulateOptions& options) {
  Arms arms;
  // A repeated rule or index counts once.
  const auto add_rule = [&](RuleChoice rule) {
    const auto same = std::ranges::find(arms.rules, rule.text, &RuleChoice::text);
    if (same == arms.rules.end()) arms.rules.push_back(std::move(rule));
  };
  for (const std::string& text : Split(options.rules)) {
    if (text == "all") {
      for (const RuleInfo& info : AllRules()) add_rule({info.name, &info, info.defaults});
      continue;
    }
    auto rule = ParseRule(text);
    if (!rule.ok()) return rule.status();
    add_rule(std::move(rule).value());
  }
  for (const std::string& name : Split(options.index)) {
    const auto kind = ParseIndexKind(name);
    if (!kind) {
      return Status(StatusCode::kInvalidArgument,
                    "--index: expected exact, full, any or approx, got '" + name + "'");
    }
    if (std::ranges::find(arms.kinds, *kind) == arms.kinds.end()) arms.kinds.push_back(*kind);
  }
  if (arms.rules.empty()) return Status(StatusCode::kInvalidArgument, "--rules: the list is empty");
  if (arms.kinds.empty()) return Status(StatusCode::kInvalidArgument, "--index: the list is empty");
  return arms;
}

// Refuses numbers that the command line accepts although they are wrong, for example NaN.
Status CheckNumbers(const SimulateOptions& options) {
  const auto bad = [](const char* flag) {
    return Status(StatusCode::kInvalidArgument, std::string(flag) + ": expected a number");
  };
  if (!std::isfinite(options.delay_ms)) return bad("--delay-ms");
  if (!std::isfinite(options.loss)) return bad("--loss");
  if (!std::isfinite(options.slow_factor)) return bad("--slow-factor");
  if (options.kill_at_s && !std::isfinite(*options.kill_at_s)) return bad("--kill-at");
  if (options.kill_at_s && options.engines < 2) {
    return {StatusCode::kInvalidArgument,
            "--kill-at: the fleet has no other engine; use --engines"};
  }
  return {};
}

Result<std::vector<Workload>> LoadWorkloads(const SimulateOptions& options) {
  const SliceOptions slices{options.slices, options.slice_requests, options.seed};
  std::vector<Workload> workloads;
  // A repeated trace or name counts once.
  const auto loaded = [&](const std::string& name) {
    return std::ranges::find(workloads, name, &Workload::name) != workloads.end();
  };
  for (const std::string& path : options.traces) {
    if (loaded(path)) continue;
    auto workload = LoadWorkload(path, slices);
    if (!workload.ok()) return workload.status();
    workloads.push_back(std::move(workload).value());
  }
  if (!workloads.empty() && options.workloads.empty()) return workloads;
  const std::vector<std::string> names = options.workloads.empty()
                                             ? std::vector<std::string>{kAgents, kShared, kChat}
                                             : options.workloads;
  for (const std::string& name : names) {
    if (loaded(name)) continue;
    auto workload = MakeWorkload(name, slices);
    if (!workload.ok()) return workload.status();
    workloads.push_back(std::move(workload).value());
  }
  return workloads;
}

// The cache of one engine. Error: the slice or the options do not fit the model.
Result<CacheConfig> CacheOf(const Workload& workload, const Slice& slice, const SimModel& model,
                            const SimulateOptions& options) {
  int64_t longest = 0;
  double sum = 0;
  for (const WorkloadRequest& request : slice.requests) {
    longest = std::max(longest, request.prompt_tokens + request.output_tokens);
    sum += static_cast<double>(request.prompt_tokens);
  }
  const auto wrong = [&](const std::string& text) {
    return Status(StatusCode::kInvalidArgument, workload.name + ": " + text);
  };
  if (longest > kMaxSequenceTokens) {
    return wrong("a prompt and its answer have " + std::to_string(longest) +
                 " tokens; an engine takes at most " + std::to_string(kMaxSequenceTokens));
  }
  const SimCacheOptions cache{
      .retention = options.retention,
      .fleet_tokens = workload.fleet_tokens,
      .mean_tokens =
          std::max<int64_t>(std::llround(sum / static_cast<double>(slice.requests.size())), 1),
      .engines = options.engines,
      .requests = std::ssize(slice.requests)};
  auto config = MakeSimCache(model, cache, longest);
  if (!config.ok()) return config.status();
  const int64_t unit = config->hash_block_size;
  if (slice.block_tokens % unit != 0 && unit % slice.block_tokens != 0) {
    return wrong("blocks of " + std::to_string(slice.block_tokens) +
                 " tokens do not fit the model's blocks of " + std::to_string(unit) + " tokens");
  }
  return config;
}

// The data that the runs of one slice share. The first job that needs the data builds it. The data
// is freed after the last job.
struct PreparedSlice {
  CacheConfig cache;
  std::unique_ptr<Prompts> prompts;
  std::unique_ptr<SliceSetup> setup;
  Status status;
};

Status Prepare(const Workload& workload, const Slice& slice, const SimModel& model,
               const SimulateOptions& options, PreparedSlice& prepared) {
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kXxhash, kDefaultHashSeed);
  if (!hasher.ok()) return hasher.status();
  prepared.prompts =
      std::make_unique<Prompts>(slice, prepared.cache.hash_block_size, std::move(hasher).value());
  prepared.setup =
      std::make_unique<SliceSetup>(SliceSetup{model, slice, *prepared.prompts, prepared.cache,
                                              TimeScale(workload, slice, model, options.engines)});
  return {};
}

std::vector<PairedRatio> PairsOf(const std::vector<MatrixRun>& runs) {
  std::vector<PairedRatio> pairs;
  for (size_t begin = 0; begin < runs.size();) {
    size_t end = begin;
    while (end < runs.size() && runs[end].workload == runs[begin].workload) ++end;
    std::vector<std::pair<std::string, std::vector<double>>> arms;
    for (size_t i = begin; i < end; ++i) {
      auto arm = std::ranges::find(arms, runs[i].arm(), &decltype(arms)::value_type::first);
      if (arm == arms.end()) {
        arms.push_back({runs[i].arm(), {}});
        arm = arms.end() - 1;
      }
      arm->second.push_back(runs[i].result.mean_first_token_s());
    }
    for (const auto& [a, of_a] : arms) {
      for (const auto& [b, of_b] : arms) {
        if (a == b) continue;
        const RatioInterval interval = PairedBootstrap(of_a, of_b);
        pairs.push_back({runs[begin].workload, a, b, interval.ratio, interval.low, interval.high});
      }
    }
    begin = end;
  }
  return pairs;
}

}  // namespace

RatioInterval PairedBootstrap(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ratio_of = [&](const auto& position) {
    double sum_a = 0;
    double sum_b = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const size_t at = position(i);
      sum_a += a[at];
      sum_b += b[at];
    }
    return sum_b == 0 ? 1 : sum_a / sum_b;
  };
  RatioInterval interval;
  interval.ratio = ratio_of([](size_t i) { return i; });
  Random random(a.size());
  std::vector<double> ratios;
  for (int k = 0; k < kResamples; ++k) {
    ratios.push_back(ratio_of([&](size_t) { return random.Next() % a.size(); }));
  }
  std::ranges::sort(ratios);
  interval.low = ratios[static_cast<size_t>(0.025 * kResamples)];
  interval.high = ratios[static_cast<size_t>(0.975 * kResamples) - 1];
  return interval;
}

Result<Matrix> RunMatrix(const SimulateOptions& options,
                         const std::function<void(size_t, size_t)>& progress) {
  if (const Status numbers = CheckNumbers(options); !numbers.ok()) return numbers;
  const auto arms = ParseArms(options);
  if (!arms.ok()) return arms.status();
  const auto model = FindSimModel(options.model);
  if (!model.ok()) return model.status();
  const auto workloads = LoadWorkloads(options);
  if (!workloads.ok()) return workloads.status();
  const FleetOptions fleet{.engines = options.engines,
                           .cpu_blocks = options.cpu_blocks,
                           .delay_s = options.delay_ms / 1000,
                           .loss = options.loss,
                           .seed = options.seed,
                           .slow_factor = options.slow_factor,
                           .kill_at_s = options.kill_at_s};

  Matrix matrix;
  struct Job {
    const Workload* workload;
    size_t slice;  // position in `prepared`
    const Slice* requests;
    const RuleChoice* rule;
    IndexKind kind;
  };
  std::vector<Job> jobs;
  std::vector<PreparedSlice> prepared;
  for (const Workload& workload : *workloads) {
    for (size_t s = 0; s < workload.slices.size(); ++s) {
      // Check all slices here, so that an error is reported before the first run.
      auto cache = CacheOf(workload, workload.slices[s], *model, options);
      if (!cache.ok()) return cache.status();
      prepared.emplace_back().cache = std::move(cache).value();
      for (const RuleChoice& rule : arms->rules) {
        for (const IndexKind kind : arms->kinds) {
          jobs.push_back({&workload, prepared.size() - 1, &workload.slices[s], &rule, kind});
          matrix.runs.push_back({.workload = workload.name,
                                 .slice = static_cast<int64_t>(s),
                                 .rule = rule.text,
                                 .index = std::string(IndexKindName(kind)),
                                 .result = {}});
        }
      }
    }
  }
  const size_t runs_per_slice = arms->rules.size() * arms->kinds.size();
  std::vector<size_t> left(prepared.size(), runs_per_slice);
  std::vector<Status> statuses(jobs.size());
  std::vector<std::once_flag> once(prepared.size());
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  size_t done = 0;
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      const Job& job = jobs[i];
      PreparedSlice& slice = prepared[job.slice];
      std::call_once(once[job.slice], [&] {
        slice.status = Prepare(*job.workload, *job.requests, *model, options, slice);
      });
      statuses[i] = slice.status;
      if (slice.status.ok()) {
        auto result = RunFleet(*slice.setup, fleet, *job.rule, job.kind);
        statuses[i] = result.status();
        if (result.ok()) matrix.runs[i].result = std::move(result).value();
      }
      const std::lock_guard lock(mutex);
      if (--left[job.slice] == 0) slice = {};
      progress(++done, jobs.size());
    }
  };
  std::vector<std::thread> threads;
  const int64_t most = std::min(options.jobs, std::ssize(jobs));
  for (int64_t j = 1; j < most; ++j) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    if (!status.ok()) return status;
  }
  matrix.pairs = PairsOf(matrix.runs);
  return matrix;
}

}  // namespace kvcast::simulate
