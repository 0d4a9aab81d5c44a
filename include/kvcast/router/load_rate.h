// LoadRate: an estimate of the rate at which a worker loads blocks from one lower tier, from
// reports of its loads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

namespace kvcast {

// Result of one report of loads.
enum class LoadReport : uint8_t {
  kTaken,        // the report is a sample
  kIdle,         // the worker loaded nothing
  kSmall,        // fewer than LoadRate::kMinBytes: latency dominates such loads
  kImplausible,  // the rate is not in LoadRate::kMinRate to kMaxRate
};
inline constexpr int kLoadReports = 4;
std::string_view LoadReportName(LoadReport report);  // "taken", "idle", "small", "implausible"

// The object keeps the last kWindow samples. A new sample removes the samples that are kLifetimeMs
// old. The estimate is the median of the kept samples. Of two middle samples, the slower one is the
// median. If fewer than half of the samples are wrong, the median is in the range of the
// correct samples. There is an estimate if at least kEnough samples are younger than kLifetimeMs.
//
// `bytes` and `seconds` have the meaning of vLLM's counters kv_offload_load_bytes and
// kv_offload_load_time. `now_ms` is the time of a monotonic clock in milliseconds.
// Thread-compatible.
class LoadRate {
 public:
  static constexpr size_t kWindow = 15;
  static constexpr size_t kEnough = 3;
  static constexpr int64_t kLifetimeMs = 600'000;
  static constexpr double kMinBytes = 1 << 20;
  static constexpr double kMinRate = 1e5;  // bytes per second
  static constexpr double kMaxRate = 1e13;

  // Adds one report: the bytes that were loaded, and the seconds that their copies took. REQUIRES:
  // `bytes` and `seconds` are finite and not negative.
  LoadReport Note(double bytes, double seconds, int64_t now_ms);
  // Adds a report of totals since the engine started. The sample is the increase since the last
  // report that gave kTaken or kImplausible. If the totals are lower than in that report, the
  // engine has restarted, and the increase counts from 0. An increase of fewer than kMinBytes gives
  // kSmall, and is part of the next increase. An increase that gives kImplausible is discarded.
  LoadReport NoteTotals(double bytes, double seconds, int64_t now_ms);

  std::optional<double> bytes_per_second(int64_t now_ms) const;  // nullopt: too few samples
  size_t samples() const { return samples_.size(); }             // of any age; at most kWindow
  std::optional<int64_t> last_ms() const;                        // time of the last sample
  const std::array<uint64_t, kLoadReports>& reports() const { return reports_; }

 private:
  struct Sample {
    double rate = 0;
    int64_t at_ms = 0;
  };
  struct Totals {
    double bytes = 0;
    double seconds = 0;
  };
  LoadReport Take(double bytes, double seconds, int64_t now_ms);
  LoadReport Count(LoadReport report);
  void Estimate(int64_t now_ms);

  std::deque<Sample> samples_;  // oldest first
  Totals totals_;               // of the last report that gave kTaken or kImplausible
  double median_ = 0;           // of the samples that were young enough at the last sample
  int64_t valid_until_ms_ = 0;
  bool valid_ = false;
  std::array<uint64_t, kLoadReports> reports_{};
};

}  // namespace kvcast
