// The HTTP client of the benchmarks refuses durations and rates that are negative or not a number.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/http_load.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvcast::tools {
namespace {

TEST(HttpLoad, RefusesDurationsAndRatesThatAreNegativeOrNaN) {
  const std::vector<std::string> requests = {HttpPost("/", "{}")};
  const auto code = [&](const HttpLoadConfig& config) {
    return RunHttpLoad(config, requests).status().code();
  };
  for (const double wrong : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(code({.connections = 0, .seconds = wrong}), StatusCode::kInvalidArgument);
    EXPECT_EQ(code({.connections = 0, .warm_up_seconds = wrong}), StatusCode::kInvalidArgument);
    EXPECT_EQ(code({.connections = 0, .rate = wrong}), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(code({.port = 0, .connections = 1}), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kvcast::tools
