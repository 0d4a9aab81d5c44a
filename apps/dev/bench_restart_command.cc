// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/service/bench_restart.h"
#include "apps/dev/dev_commands.h"
#include "apps/dev/quantiles_json.h"
#include "apps/support/temporary_folder.h"

namespace kvcast::tools {
namespace {

using nlohmann::json;

constexpr double kRestart = 2;  // seconds
constexpr double kBytesPerResidency = 24;
constexpr double kSavingRatio = 2;

double Quotient(double a, double b) { return b > 0 ? a / b : 0; }

void PrintTimes(const char* name, const Quantiles& times, double unit, const char* unit_name) {
  std::printf("%-26s p50 %9.2f  p99 %9.2f  max %9.2f %s\n", name, times.p50 / unit,
              times.p99 / unit, times.max / unit, unit_name);
}

void PrintFigures(const RestartBenchOptions& options, const RestartResult& result) {
  const SavesResult& saves = result.saves;
  std::printf("# %lld sources, %.0f batches/s in total, %llu residencies, a save every %lld s\n",
              static_cast<long long>(options.sources), result.rate,
              static_cast<unsigned long long>(saves.residencies),
              static_cast<long long>(options.state_interval));
  std::printf(
      "%-26s %.1f MiB, %.1f bytes a residency, up to %.2f s, ingestion paused up to %.1f ms in the "
      "latest\n",
      "a save", static_cast<double>(saves.bytes) / (1 << 20),
      Quotient(static_cast<double>(saves.bytes), static_cast<double>(saves.residencies)),
      saves.seconds, saves.pause_seconds * 1e3);
  PrintTimes("queries without a save", saves.quiet, 1e-6, "us");
  PrintTimes("queries during a save", saves.saving, 1e-6, "us");
  std::printf("%-26s %llu without a save, %llu during a save; slow times: %.1f %%\n",
              "queries at full speed", static_cast<unsigned long long>(saves.quiet_queries),
              static_cast<unsigned long long>(saves.saving_queries), saves.slow_share * 100);
  PrintTimes("exact after a kill", result.restarted, 1, "s");
  if (options.joins > 0) {
    PrintTimes("state of a peer arrived", result.arrived, 1, "s");
    PrintTimes("blocks restored", result.restored_after, 1, "s");
    PrintTimes("exact after a join", result.joined, 1, "s");
    std::printf("%-26s %.1f MiB\n", "the state of a peer",
                static_cast<double>(result.join_bytes) / (1 << 20));
  }
  if (result.cold < 0) {
    std::printf("%-26s never (waited a minute)\n", "exact without saved state");
  } else {
    std::printf("%-26s %.2f s\n", "exact without saved state", result.cold);
  }
  std::printf(
      "%-26s %llu restored, %llu dropped, %llu prompts asked, %llu not exact, %llu digests\n",
      "after the starts", static_cast<unsigned long long>(result.restored),
      static_cast<unsigned long long>(result.dropped),
      static_cast<unsigned long long>(result.asked),
      static_cast<unsigned long long>(result.inexact),
      static_cast<unsigned long long>(result.digest_checks));
}

}  // namespace

int RunRestartBenchCommand(const RestartBenchOptions& options) {
  const auto folder = TemporaryFolder::Create("kvcast-restart-");
  if (!folder.ok()) return Fail(folder.status());
  const auto result = RunRestartBench({.sources = static_cast<int>(options.sources),
                                       .batches_per_s = static_cast<int>(options.rate),
                                       .held_blocks = options.blocks,
                                       .kills = static_cast<int>(options.kills),
                                       .joins = static_cast<int>(options.joins),
                                       .save_period_s = options.state_interval,
                                       .query_seconds = static_cast<int>(options.seconds),
                                       .extension = !options.plain,
                                       .folder = folder->path() + "/state"});
  if (!result.ok()) return Fail(result.status());
  PrintFigures(options, *result);
  const SavesResult& saves = result->saves;
  const double bytes =
      Quotient(static_cast<double>(saves.bytes), static_cast<double>(saves.residencies));
  const double saving_ratio = Quotient(saves.saving.p99, saves.quiet.p99);
  json targets = json::array();
  const auto add = [&](const char* name, double figure, double target) {
    const bool met = figure <= target;
    std::printf("%-26s %10.3g  target %8.3g  %s\n", name, figure, target, met ? "met" : "NOT MET");
    targets.push_back({{"name", name}, {"figure", figure}, {"target", target}, {"met", met}});
  };
  add("wrong answers", static_cast<double>(result->wrong), 0);
  add("digest mismatches", static_cast<double>(result->digest_mismatches), 0);
  if (options.kills > 0) add("slowest restart, s", result->restarted.max, kRestart);
  if (options.joins > 0) add("slowest join, s", result->joined.max, kRestart);
  add("bytes a residency", bytes, kBytesPerResidency);
  if (saves.saving_queries > 0) add("query p99, save / no save", saving_ratio, kSavingRatio);
  if (options.json) {
    std::printf("%s\n", json{{"name", "restart"},
                             {"residencies", saves.residencies},
                             {"rate", result->rate},
                             {"cold_s", result->cold},
                             {"restart_s", JsonOf(result->restarted)},
                             {"arrived_s", JsonOf(result->arrived)},
                             {"restored_s", JsonOf(result->restored_after)},
                             {"join_s", JsonOf(result->joined)},
                             {"join_bytes", result->join_bytes},
                             {"quiet_s", JsonOf(saves.quiet)},
                             {"saving_s", JsonOf(saves.saving)},
                             {"slow_share", saves.slow_share},
                             {"save_s", saves.seconds},
                             {"pause_s", saves.pause_seconds},
                             {"saves", saves.saves},
                             {"bytes", saves.bytes},
                             {"restored", result->restored},
                             {"dropped", result->dropped},
                             {"asked", result->asked},
                             {"inexact", result->inexact},
                             {"digest_checks", result->digest_checks},
                             {"targets", targets}}
                            .dump()
                            .c_str());
  }
  return result->wrong + result->digest_mismatches == 0 ? 0 : 1;
}

}  // namespace kvcast::tools
