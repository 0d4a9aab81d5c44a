// LoadRate: the rate at which a worker loads blocks from one lower tier, estimated from reports of
// its loads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

namespace kvcast {

// Result of a report of loads.
enum class LoadReport : uint8_t {
  kTaken,        // a sample
  kIdle,         // nothing was loaded
  kSmall,        // fewer than LoadRate::kMinBytes: such loads show latency, not rate
  kImplausible,  // no time, or a rate outside LoadRate::kMinRate to kMaxRate
};
inline constexpr int kLoadReports = 4;
std::string_view LoadReportName(LoadReport report);  // "taken", "idle", "small", "implausible"

// The rate is the median of the last kWindow samples, of two in the middle the slower one: fewer
// than half of the samples cannot move it past the others. There is a rate while kEnough samples
// are younger than kLifetimeMs. Bytes and seconds are those of vLLM's counters
// (kv_offload_load_bytes and kv_offload_load_time). Times of the calls are a monotonic clock's, in
// ms. Thread-compatible.
class LoadRate {
 public:
  static constexpr size_t kWindow = 15;
  static constexpr size_t kEnough = 3;
  static constexpr int64_t kLifetimeMs = 600'000;
  static constexpr double kMinBytes = 1 << 20;
  static constexpr double kMinRate = 1e5;  // bytes per second
  static constexpr double kMaxRate = 1e13;

  // Bytes that were loaded, and the seconds that their copies took. Not negative, finite.
  LoadReport Note(double bytes, double seconds, int64_t now_ms);
  // The same as totals since the engine began: the sample is the increase since the last sample.
  // Totals that fell are those of a restarted engine. An increase of fewer than kMinBytes is
  // kSmall and remains part of the next one.
  LoadReport NoteTotals(double bytes, double seconds, int64_t now_ms);

  std::optional<double> bytes_per_second(int64_t now_ms) const;  // nullopt: too few samples
  size_t samples() const { return samples_.size(); }             // of any age, at most kWindow
  std::optional<int64_t> last_ms() const;                        // of the last sample
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
  Totals totals_;               // up to the last sample
  double median_ = 0;           // of the samples that were young at the last one
  int64_t valid_until_ms_ = 0;
  bool valid_ = false;
  std::array<uint64_t, kLoadReports> reports_{};
};

}  // namespace kvcast
