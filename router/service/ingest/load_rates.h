// LoadRates: computes the cost of one worker's loads from lower tiers. The inputs are configured
// and reported rates.
//
//   POST /v1/load_rates
//   {"worker": name, "loads": [{"tier": "CPU" or "STORAGE", and either
//      "bytes", "seconds"              of one load, or of all loads since the previous report
//      "bytes_total", "seconds_total"  of all loads since the engine started}, ...]}
//
// Rates are in bytes per second, because connectors and links are measured in this unit, and
// because the rate of a tier does not change with the model. kv_bytes_per_token converts bytes to
// tokens. If an engine sums both bytes and seconds over its tensor-parallel ranks, the result is
// the rate of one rank. kv_bytes_per_token must then be the value of one rank too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/core/tier.h"
#include "kvcast/router/load_rate.h"
#include "kvcast/router/selector.h"
#include "src/base/mutex.h"

namespace kvcast::router {

inline constexpr size_t kMaxLoadsAReport = 64;

// The configured rates of a source. 0: not configured.
struct LoadRateConfig {
  int64_t kv_bytes_per_token = 0;  // bytes that a load of one token copies, all groups together
  int64_t prefill_tokens_per_s = 0;
  int64_t cpu_bytes_per_s = 0;      // from host memory to the GPU
  int64_t storage_bytes_per_s = 0;  // from storage to host memory
};
inline constexpr int64_t kMaxKvBytesPerToken = int64_t{1} << 40;
inline constexpr int64_t kMaxPrefillTokensPerS = 1'000'000'000;

struct LoadMeasurement {
  Tier tier = Tier::kCpu;
  double bytes = 0;
  double seconds = 0;
  bool totals = false;  // bytes and seconds are sums since the engine started
};

struct LoadRateReport {
  std::string worker;
  std::vector<LoadMeasurement> loads;
};
// Not ok: one line that names the wrong member.
Result<LoadRateReport> ParseLoadRateReport(std::string_view body);

// The rate of one tier at one time.
struct TierLoadRate {
  std::optional<double> configured;  // bytes per second; nullopt: not configured
  // Bytes per second; replaces the configured rate. nullopt: there is no measurement.
  std::optional<double> measured;
  // Cost of a token, as in LoadCosts. nullopt: the configured weight is used.
  std::optional<double> cost;
  size_t samples = 0;
  std::optional<double> age_seconds;  // age of the newest sample; nullopt: no sample
  std::array<uint64_t, kLoadReports> reports{};
};

struct LoadRatesView {
  LoadRateConfig config;
  TierLoadRate cpu;
  TierLoadRate storage;
};

// Thread-safe. Times are those of a monotonic clock.
class LoadRates {
 public:
  explicit LoadRates(const LoadRateConfig& config) : config_(config) {}

  LoadReport Note(const LoadMeasurement& load, int64_t now_ms);
  // A token on storage is first read into host memory and then loaded to the GPU. Its cost is the
  // sum of both costs, or only the cost of the read if the rate of host memory is unknown.
  LoadCosts costs(int64_t now_ms) const;
  LoadRatesView view(int64_t now_ms) const;

 private:
  LoadCosts CostsAt(int64_t now_ms) const KV_REQUIRES(mutex_);
  TierLoadRate Describe(const LoadRate& rate, int64_t configured, int64_t now_ms) const
      KV_REQUIRES(mutex_);

  const LoadRateConfig config_;
  mutable Mutex mutex_;
  LoadRate cpu_ KV_GUARDED_BY(mutex_);
  LoadRate storage_ KV_GUARDED_BY(mutex_);
};

// {"kv_bytes_per_token": n|null, "prefill_tokens_per_s": n|null, "tiers": {"CPU":
// {"configured_bytes_per_s": x|null, "measured_bytes_per_s": x|null, "cost": x|null, "samples",
// "age_seconds": x|null, "reports": {"taken", ...}}, "STORAGE": {...}}}
nlohmann::json LoadRatesToJson(const LoadRatesView& view);

}  // namespace kvcast::router
