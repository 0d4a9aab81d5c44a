// `kvcast demo`: compares routing policies on one real trace in virtual time. The command then runs
// the trace with engine processes, and checks that the index agrees with the engines' own lookups.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "apps/commands/commands.h"
#include "apps/demo/demo_policies.h"
#include "apps/demo/demo_report.h"
#include "apps/demo/demo_run.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/load_rate.h"
#include "apps/support/file.h"
#include "apps/support/stop.h"
#include "apps/support/trace.h"
#include "kvcast/wire/wire.h"
#include "router/service/config_json.h"
#include "src/http/loopback.h"

namespace kvcast::tools {
namespace {

constexpr double kRunSeconds = 30;
constexpr double kServedSeconds = 120;

// Refuses the flags that the engines would refuse. The check runs before a process starts.
Status CheckOptions(const DemoOptions& options) {
  if (options.engines < 1 || options.engines > 64) {
    return {StatusCode::kInvalidArgument, "--engines: must be 1 to 64"};
  }
  if (options.requests < 1) return {StatusCode::kInvalidArgument, "--requests: must be above 0"};
  if (options.dialects == "all" && options.requests < options.engines) {
    return {StatusCode::kInvalidArgument,
            "--requests: must be at least the number of engines of --dialect all"};
  }
  if (options.speed < 0) return {StatusCode::kInvalidArgument, "--speed: must not be negative"};
  if (!options.serve.empty()) {
    HttpOptions http;
    const Status address = router::ParseHttpAddress(options.serve, http);
    if (!address.ok()) return {address.code(), "--serve: expected ADDR:PORT"};
    if (!IsLoopbackAddress(http.address)) {
      return {StatusCode::kInvalidArgument, "--serve: " + http.address + " is not loopback"};
    }
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

// Seconds of the trace per second of real time. By default the run takes at most about `seconds`.
double PaceOf(const DemoOptions& options, const std::vector<TraceRequest>& trace, double seconds) {
  return options.speed > 0 ? options.speed : std::max(trace.back().arrival_s / seconds, 1.0);
}

int Serve(DemoOptions options, const std::vector<TraceRequest>& trace) {
  if (const Status rate = ResolveLoadRate(options.cache); !rate.ok()) return Fail(rate);
  const auto run = RunRouted(options, trace, PaceOf(options, trace, kServedSeconds));
  return StopSignal() != 0 ? 0 : Fail(run.status());
}

// The exit code of a finished demo.
int Judge(const PolicyComparison& comparison, const RunResult& run) {
  if (!comparison.exact()) {
    return Fail("virtual time: the index differs from an engine's own lookup");
  }
  for (const EngineResult& dialect : ResultsByDialect(run)) {
    if (dialect.audit.compared == 0) {
      return Fail("no engine with dialect " + dialect.name + " got a request: use more --requests");
    }
    if (dialect.audit.equal != dialect.audit.compared) {
      return Fail(dialect.name + ": the index differs from the engine's own lookup");
    }
  }
  if (run.wrong_blocks > 0) return Fail("reused blocks have wrong bytes");
  if (run.answers.equal != run.answers.compared) return Fail("an exact answer was wrong");
  return 0;
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
  auto trace = LoadDemoTrace(options);
  if (!trace.ok()) return Fail(trace.status());
  if (!options.serve.empty()) return Serve(options, *trace);
  // The comparison must run before ResolveLoadRate measures the load rate. So the figures of the
  // comparison do not depend on this machine.
  const auto comparison = ComparePolicies(options, *trace);
  if (!comparison.ok()) return Fail(comparison.status());
  PrintPolicies(options, *comparison);
  std::fflush(stdout);
  if (StopSignal() != 0) return Fail("interrupted", 128 + StopSignal());
  if (const Status rate = ResolveLoadRate(options.cache); !rate.ok()) return Fail(rate);
  const auto run = RunRouted(options, *trace, PaceOf(options, *trace, kRunSeconds));
  if (StopSignal() != 0) return Fail("interrupted", 128 + StopSignal());
  if (!run.ok()) return Fail(run.status());
  PrintDemoReport(options, *comparison, *run);
  return Judge(*comparison, *run);
}

}  // namespace kvcast::tools
