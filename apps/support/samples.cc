// SPDX-License-Identifier: Apache-2.0
#include "apps/support/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvcast::bench {

double Samples::Quantile(double q) const {
  if (values_.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(values_.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  std::vector<double> values = values_;
  const auto it = values.begin() + static_cast<std::ptrdiff_t>(std::min(index, values.size() - 1));
  std::nth_element(values.begin(), it, values.end());
  return *it;
}

double Samples::sum() const { return std::accumulate(values_.begin(), values_.end(), 0.0); }

}  // namespace kvcast::bench
