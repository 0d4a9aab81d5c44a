// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/load_rates.h"

#include <algorithm>
#include <utility>

#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

constexpr int kReportDepth = 3;
// Bounds of the totals since an engine started: 1 exabyte, and 30 years.
constexpr double kMaxBytes = 1e18;
constexpr double kMaxSeconds = 1e9;

Status ReadTier(const Json& json, const std::string& member, Tier& tier) {
  if (json != "CPU" && json != "STORAGE") return BadField(member + ": must be CPU or STORAGE");
  tier = json == "CPU" ? Tier::kCpu : Tier::kStorage;
  return Status();
}

Status ReadLoad(const Json& json, const std::string& element, LoadMeasurement& load) {
  if (!json.is_object()) return BadField(element + ": must be an object");
  load.totals = json.contains("bytes_total");
  const std::string bytes = load.totals ? "bytes_total" : "bytes";
  const std::string seconds = load.totals ? "seconds_total" : "seconds";
  for (const std::string& needed : {std::string("tier"), bytes, seconds}) {
    if (!json.contains(needed)) return BadField(element + "." + needed + ": required");
  }
  for (const auto& [name, value] : json.items()) {
    const std::string member = element + "." + name.substr(0, kMaxTextBytes);
    Status status;
    if (name == "tier") {
      status = ReadTier(value, member, load.tier);
    } else if (name == bytes) {
      status = ReadNumber(value, member, 0, kMaxBytes, load.bytes);
    } else if (name == seconds) {
      status = ReadNumber(value, member, 0, kMaxSeconds, load.seconds);
    } else {
      status = BadField("unknown member: " + member);
    }
    if (!status.ok()) return status;
  }
  return Status();
}

Status ReadLoads(const Json& json, std::vector<LoadMeasurement>& loads) {
  if (!json.is_array() || json.empty() || json.size() > kMaxLoadsAReport) {
    return BadField("loads: must be an array of 1 to " + std::to_string(kMaxLoadsAReport) +
                    " elements");
  }
  for (const Json& item : json) {
    const std::string element = "loads[" + std::to_string(loads.size()) + "]";
    if (Status status = ReadLoad(item, element, loads.emplace_back()); !status.ok()) return status;
  }
  return Status();
}

Json OrNull(int64_t configured) { return configured > 0 ? Json(configured) : Json(nullptr); }
Json OrNull(const std::optional<double>& known) { return known ? Json(*known) : Json(nullptr); }

Json TierToJson(const TierLoadRate& tier) {
  Json reports = Json::object();
  for (size_t i = 0; i < tier.reports.size(); ++i) {
    reports[std::string(LoadReportName(static_cast<LoadReport>(i)))] = tier.reports[i];
  }
  return {{"configured_bytes_per_s", OrNull(tier.configured)},
          {"measured_bytes_per_s", OrNull(tier.measured)},
          {"cost", OrNull(tier.cost)},
          {"samples", tier.samples},
          {"age_seconds", OrNull(tier.age_seconds)},
          {"reports", std::move(reports)}};
}

// nullopt: the value is not configured.
std::optional<double> Configured(int64_t value) {
  return value > 0 ? std::optional(static_cast<double>(value)) : std::nullopt;
}

}  // namespace

Result<LoadRateReport> ParseLoadRateReport(std::string_view body) {
  const Result<Json> json = ParseObject(body, kReportDepth);
  if (!json.ok()) return json.status();
  LoadRateReport report;
  for (const auto& [name, value] : json->items()) {
    Status status;
    if (name == "worker") {
      status = ReadText(value, name, report.worker);
    } else if (name == "loads") {
      status = ReadLoads(value, report.loads);
    } else {
      status = BadField("unknown member: " + name.substr(0, kMaxTextBytes));
    }
    if (!status.ok()) return status;
  }
  if (report.worker.empty()) return BadField("worker: required");
  if (report.loads.empty()) return BadField("loads: required");
  return report;
}

LoadReport LoadRates::Note(const LoadMeasurement& load, int64_t now_ms) {
  const MutexLock lock(mutex_);
  LoadRate& rate = load.tier == Tier::kCpu ? cpu_ : storage_;
  return load.totals ? rate.NoteTotals(load.bytes, load.seconds, now_ms)
                     : rate.Note(load.bytes, load.seconds, now_ms);
}

LoadCosts LoadRates::costs(int64_t now_ms) const {
  const MutexLock lock(mutex_);
  return CostsAt(now_ms);
}

LoadCosts LoadRates::CostsAt(int64_t now_ms) const {
  LoadCosts costs;
  if (config_.kv_bytes_per_token == 0 || config_.prefill_tokens_per_s == 0) return costs;
  const double computed_bytes_per_s = static_cast<double>(config_.kv_bytes_per_token) *
                                      static_cast<double>(config_.prefill_tokens_per_s);
  const auto cost = [&](const LoadRate& rate, int64_t configured) -> std::optional<double> {
    const auto measured = rate.bytes_per_second(now_ms);
    const auto best = measured ? measured : Configured(configured);
    return best ? std::optional(computed_bytes_per_s / *best) : std::nullopt;
  };
  costs.cpu = cost(cpu_, config_.cpu_bytes_per_s);
  costs.storage = cost(storage_, config_.storage_bytes_per_s);
  if (costs.storage) *costs.storage += costs.cpu.value_or(0);
  return costs;
}

TierLoadRate LoadRates::Describe(const LoadRate& rate, int64_t configured, int64_t now_ms) const {
  TierLoadRate tier{.configured = Configured(configured),
                    .measured = rate.bytes_per_second(now_ms),
                    .cost = {},
                    .samples = rate.samples(),
                    .age_seconds = {},
                    .reports = rate.reports()};
  if (const auto last = rate.last_ms()) {
    tier.age_seconds = static_cast<double>(std::max<int64_t>(now_ms - *last, 0)) / 1000;
  }
  return tier;
}

LoadRatesView LoadRates::view(int64_t now_ms) const {
  const MutexLock lock(mutex_);
  LoadRatesView view{config_, Describe(cpu_, config_.cpu_bytes_per_s, now_ms),
                     Describe(storage_, config_.storage_bytes_per_s, now_ms)};
  const LoadCosts costs = CostsAt(now_ms);
  view.cpu.cost = costs.cpu;
  view.storage.cost = costs.storage;
  return view;
}

Json LoadRatesToJson(const LoadRatesView& view) {
  return {{"kv_bytes_per_token", OrNull(view.config.kv_bytes_per_token)},
          {"prefill_tokens_per_s", OrNull(view.config.prefill_tokens_per_s)},
          {"tiers", {{"CPU", TierToJson(view.cpu)}, {"STORAGE", TierToJson(view.storage)}}}};
}

}  // namespace kvcast::router
