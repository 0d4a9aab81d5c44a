// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/service/bench_hostile.h"
#include "apps/dev/dev_commands.h"
#include "apps/dev/quantiles_json.h"

namespace kvcast::tools {
namespace {

using nlohmann::json;

constexpr double kHostileVisibleP99 = 10e-3;

struct Row {
  std::string_view name;
  HostileResult result;
};

bool Met(const HostileResult& result) {
  return result.published == result.applied && result.visible_full_speed.p99 <= kHostileVisibleP99;
}

void Print(const Row& row) {
  const HostileResult& result = row.result;
  const bool attacked = row.name != "none";
  std::printf(
      "%-18s %8.2f %8.2f %9.2f %5.1f %7.2f %9.2f %6llu %9.0f %10llu %10llu %9.1f  %-12s %7.0f  "
      "%s\n",
      std::string(row.name).c_str(), result.visible.p50 * 1e3, result.visible.p99 * 1e3,
      result.visible.max * 1e3, result.slow_share * 100, result.visible_full_speed.p99 * 1e3,
      result.visible_full_speed.max * 1e3,
      static_cast<unsigned long long>(result.published - result.applied), result.rate,
      static_cast<unsigned long long>(result.sent.batches),
      static_cast<unsigned long long>(result.hostile_applied),
      static_cast<double>(result.sent.bytes) / (1 << 20),
      attacked ? std::string(SourceStateName(result.hostile_state)).c_str() : "-",
      result.resident_mib, Met(result) ? "met" : "NOT MET");
  std::fflush(stdout);
}

json JsonOf(const Row& row) {
  const HostileResult& result = row.result;
  return {{"attack", row.name},
          {"visible_s", JsonOf(result.visible)},
          {"visible_full_speed_s", JsonOf(result.visible_full_speed)},
          {"slow_share", result.slow_share},
          {"published", result.published},
          {"applied", result.applied},
          {"rate", result.rate},
          {"hostile_batches", result.sent.batches},
          {"hostile_bytes", result.sent.bytes},
          {"hostile_applied", result.hostile_applied},
          {"hostile_state", SourceStateName(result.hostile_state)},
          {"resident_mib", result.resident_mib},
          {"met", Met(result)}};
}

}  // namespace

int RunHostileBenchCommand(const HostileBenchOptions& options) {
  std::vector<const Attack*> attacks;
  if (options.attacks.empty()) {
    attacks.push_back(nullptr);
    for (const Attack& attack : Attacks()) attacks.push_back(&attack);
  }
  for (const std::string& name : options.attacks) {
    const Attack* attack = FindAttack(name);
    if (attack == nullptr && name != "none") return Fail("no attack has the name " + name, 2);
    attacks.push_back(attack);
  }
  const FreshnessConfig good{.sources = static_cast<int>(options.sources),
                             .batches_per_s = static_cast<int>(options.rate),
                             .seconds = static_cast<int>(options.seconds)};
  for (const Attack& attack : Attacks()) {
    std::printf("# %-18s %s\n", std::string(attack.name).c_str(),
                std::string(attack.summary).c_str());
  }
  std::printf(
      "# %d good sources, %d batches/s each, %d s an attack; times in ms\n# slow%%: share of the "
      "time in which the machine was slow; p99* and max*: without it\n",
      good.sources, good.batches_per_s, good.seconds);
  std::printf("%-18s %8s %8s %9s %5s %7s %9s %6s %9s %10s %10s %9s  %-12s %7s\n", "attack", "p50",
              "p99", "max", "slow%", "p99*", "max*", "lost", "rate", "sent", "applied", "MiB",
              "attacker", "RSS MiB");
  json rows = json::array();
  bool lossless = true;
  for (const Attack* attack : attacks) {
    const auto result = RunHostileBench(attack, good, static_cast<size_t>(options.ingest_threads));
    if (!result.ok()) return Fail(result.status());
    const Row row{attack == nullptr ? "none" : attack->name, *result};
    Print(row);
    rows.push_back(JsonOf(row));
    lossless = lossless && result->published == result->applied;
  }
  if (options.json) {
    std::printf("%s\n", json{{"name", "hostile"},
                             {"sources", good.sources},
                             {"batches_per_s", good.batches_per_s},
                             {"seconds", good.seconds},
                             {"ingest_threads", options.ingest_threads},
                             {"attacks", rows}}
                            .dump()
                            .c_str());
  }
  return lossless ? 0 : 1;
}

}  // namespace kvcast::tools
