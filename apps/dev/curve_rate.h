// The rate of batches from a publisher to a subscriber over TCP on loopback, plain and with CURVE.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct CurveRate {
  size_t payload_bytes = 0;
  double plain_per_s = 0;  // batches per second without CURVE, the median of the rounds
  double curve_per_s = 0;  // batches per second with CURVE, the median of the rounds
};

// Measures payloads of 2 kB and 16 kB. The rounds with and without CURVE alternate. Error: a socket
// or a file is not available.
Result<std::vector<CurveRate>> MeasureCurveRates();

}  // namespace kvcast::tools
