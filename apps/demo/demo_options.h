// Options of the demo, filled by the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "apps/engine/engine_options.h"

namespace kvcast::tools {

struct DemoOptions {
  CacheOptions cache;
  int64_t engines = 4;
  int64_t requests = 1000;
  double speed = 0;   // trace seconds per second; 0: a run takes about 12 s
  std::string trace;  // empty: the bundled slice
  // Comma-separated list. The engines take the dialects in turn. Empty: the default of the release.
  std::string dialects;
  // ADDR:PORT where the router service of the run listens. It serves its dashboard until the demo
  // is interrupted. Empty: no dashboard.
  std::string serve;
  bool json = false;
};

}  // namespace kvcast::tools
