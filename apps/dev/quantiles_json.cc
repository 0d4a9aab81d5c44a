// SPDX-License-Identifier: Apache-2.0
#include "apps/dev/quantiles_json.h"

#include <nlohmann/json.hpp>

namespace kvcast::tools {

nlohmann::json JsonOf(const Quantiles& quantiles) {
  return {{"p50", quantiles.p50},
          {"p99", quantiles.p99},
          {"p999", quantiles.p999},
          {"max", quantiles.max}};
}

}  // namespace kvcast::tools
