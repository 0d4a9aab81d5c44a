// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/load_rate.h"

#include <algorithm>
#include <vector>

namespace kvcast {

std::string_view LoadReportName(LoadReport report) {
  constexpr std::array<std::string_view, kLoadReports> kNames = {"taken", "idle", "small",
                                                                 "implausible"};
  return kNames[static_cast<size_t>(report)];
}

LoadReport LoadRate::Note(double bytes, double seconds, int64_t now_ms) {
  return Count(Take(bytes, seconds, now_ms));
}

LoadReport LoadRate::NoteTotals(double bytes, double seconds, int64_t now_ms) {
  if (bytes < totals_.bytes || seconds < totals_.seconds) totals_ = {};
  const LoadReport report = Take(bytes - totals_.bytes, seconds - totals_.seconds, now_ms);
  // Small increases are added up. An implausible increase must not change the increases that
  // follow.
  if (report == LoadReport::kTaken || report == LoadReport::kImplausible) {
    totals_ = {bytes, seconds};
  }
  return Count(report);
}

LoadReport LoadRate::Take(double bytes, double seconds, int64_t now_ms) {
  if (bytes <= 0) return LoadReport::kIdle;
  if (bytes < kMinBytes) return LoadReport::kSmall;
  // Compares products, because a division by a time of 0 has no finite result.
  if (bytes < kMinRate * seconds || bytes > kMaxRate * seconds) return LoadReport::kImplausible;
  samples_.push_back({bytes / seconds, now_ms});
  if (samples_.size() > kWindow) samples_.pop_front();
  Estimate(now_ms);
  return LoadReport::kTaken;
}

LoadReport LoadRate::Count(LoadReport report) {
  ++reports_[static_cast<size_t>(report)];
  return report;
}

void LoadRate::Estimate(int64_t now_ms) {
  while (samples_.front().at_ms <= now_ms - kLifetimeMs) samples_.pop_front();
  valid_ = samples_.size() >= kEnough;
  if (!valid_) return;
  std::vector<double> rates;
  for (const Sample& sample : samples_) rates.push_back(sample.rate);
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((rates.size() - 1) / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  median_ = *middle;
  valid_until_ms_ = samples_[samples_.size() - kEnough].at_ms + kLifetimeMs;
}

std::optional<double> LoadRate::bytes_per_second(int64_t now_ms) const {
  if (!valid_ || now_ms >= valid_until_ms_) return std::nullopt;
  return median_;
}

std::optional<int64_t> LoadRate::last_ms() const {
  if (samples_.empty()) return std::nullopt;
  return samples_.back().at_ms;
}

}  // namespace kvcast
