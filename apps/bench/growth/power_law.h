// PowerLaw: the curve y = factor * x^exponent that fits measurements.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <utility>

namespace kvcast::bench {

struct PowerLaw {
  double factor = 0;
  double exponent = 0;
  // The standard error of the exponent. 0 if there are only two points.
  double error = 0;

  double At(double x) const;
};

// Least-squares regression of log(y) on log(x). x and y must be > 0. nullopt: the points have fewer
// than two different values of x.
std::optional<PowerLaw> FitPowerLaw(std::span<const std::pair<double, double>> points);

}  // namespace kvcast::bench
