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
  // Comma-separated; the engines take them in turn; empty: the default of the release.
  std::string dialects;
  // ADDR:PORT of a router service that routes the requests and serves its dashboard until it is
  // interrupted. Empty: none.
  std::string serve;
  bool json = false;
};

}  // namespace kvcast::tools
