// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/power_law.h"

#include <algorithm>
#include <cmath>

namespace kvcast::bench {

double PowerLaw::At(double x) const { return factor * std::pow(x, exponent); }

std::optional<PowerLaw> FitPowerLaw(std::span<const std::pair<double, double>> points) {
  const auto count = static_cast<double>(points.size());
  double mean_log_x = 0;
  double mean_log_y = 0;
  for (const auto& [x, y] : points) {
    mean_log_x += std::log(x) / count;
    mean_log_y += std::log(y) / count;
  }
  double xx = 0;
  double xy = 0;
  double yy = 0;
  for (const auto& [x, y] : points) {
    const double log_dx = std::log(x) - mean_log_x;
    const double log_dy = std::log(y) - mean_log_y;
    xx += log_dx * log_dx;
    xy += log_dx * log_dy;
    yy += log_dy * log_dy;
  }
  if (points.size() < 2 || xx < 1e-12) return std::nullopt;
  PowerLaw law;
  law.exponent = xy / xx;
  law.factor = std::exp(mean_log_y - law.exponent * mean_log_x);
  const double residual = std::max(yy - law.exponent * xy, 0.0);
  if (points.size() > 2) law.error = std::sqrt(residual / (count - 2) / xx);
  return law;
}

}  // namespace kvcast::bench
