// `kvcast demo`: runs one real trace with the same engines under three routing policies, and checks
// that the index agrees with the engines' own lookups.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "apps/commands/commands.h"
#include "apps/demo/demo_report.h"
#include "apps/demo/demo_run.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/load_rate.h"
#include "apps/support/file.h"
#include "apps/support/stop.h"
#include "apps/support/trace.h"
#include "kvcast/wire/wire.h"
#include "router/service/config_json.h"

namespace kvcast::tools {
namespace {

constexpr double kRunSeconds = 12;
constexpr double kServedSeconds = 120;

// Refuses the flags that the engines would refuse, before a process starts.
Status CheckOptions(const DemoOptions& options) {
  if (options.engines < 1 || options.engines > 64) {
    return {StatusCode::kInvalidArgument, "--engines: must be 1 to 64"};
  }
  if (options.requests < 1) return {StatusCode::kInvalidArgument, "--requests: must be above 0"};
  if (options.dialects == "all" && options.requests < options.engines) {
    return {StatusCode::kInvalidArgument,
            "--requests: must be at least the number of engines of --dialect all"};
  }
  if (options.speed < 0) return {StatusCode::kInvalidArgument, "--speed: must be above 0"};
  if (!options.serve.empty()) {
    HttpOptions http;
    const Status address = router::ParseHttpAddress(options.serve, http);
    if (!address.ok()) return {address.code(), "--serve: expected ADDR:PORT"};
  }
  if (const auto dialects = DialectsOf(options.cache, options.dialects); !dialects.ok())
    return dialects.status();
  auto cache = MakeCacheManager(options.cache);
  if (!cache.ok()) return cache.status();
  return MakeHostTier(options.cache, **cache).status();
}

Result<std::vector<TraceRequest>> LoadDemoTrace(const DemoOptions& options) {
  if (!options.trace.empty()) return LoadTrace(options.trace, options.requests);
  auto path = FindDataFile(kBundledTrace);
  if (!path.ok()) return path.status();
  return LoadTrace(*path, options.requests);
}

}  // namespace

int RunDemo(const DemoOptions& given) {
  DemoOptions options = given;
  InstallStopSignals();
  if (const auto dialects = DialectsOf(options.cache, options.dialects);
      dialects.ok() && options.dialects == "all") {
    options.engines = std::max(options.engines, std::ssize(*dialects));
  }
  if (const Status checked = CheckOptions(options); !checked.ok()) return Fail(checked);
  if (const Status rate = ResolveLoadRate(options.cache); !rate.ok()) return Fail(rate);
  auto trace = LoadDemoTrace(options);
  if (!trace.ok()) return Fail(trace.status());
  const double speed =
      options.speed > 0 ? options.speed : std::max(trace->back().arrival_s / kRunSeconds, 1.0);

  if (!options.serve.empty()) {
    const double pace =
        options.speed > 0 ? options.speed : std::max(trace->back().arrival_s / kServedSeconds, 1.0);
    const auto run = RunRouted(options, *trace, RoutingPolicy::kExact, pace);
    return StopSignal() != 0 ? 0 : Fail(run.status());
  }
  std::vector<RunResult> runs;
  for (const auto policy :
       {RoutingPolicy::kExact, RoutingPolicy::kFullOnly, RoutingPolicy::kRoundRobin}) {
    auto run = RunRouted(options, *trace, policy, speed);
    if (StopSignal() != 0) return Fail("interrupted", 128 + StopSignal());
    if (!run.ok()) return Fail(run.status());
    runs.push_back(std::move(run).value());
  }
  PrintDemoReport(options, runs);
  // A dialect without a compared answer does not count as exact.
  const bool exact = std::ranges::all_of(ResultsByDialect(runs), [](const EngineResult& dialect) {
    return dialect.audit.compared > 0 && dialect.audit.equal == dialect.audit.compared;
  });
  const bool right = std::ranges::all_of(runs, [](const RunResult& run) {
    return run.wrong_blocks == 0 && run.answers.equal == run.answers.compared;
  });
  return exact && right ? 0 : 1;
}

}  // namespace kvcast::tools
