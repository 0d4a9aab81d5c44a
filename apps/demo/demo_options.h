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
  double speed = 0;      // 0: chosen so that one run takes about 12 s
  std::string trace;     // empty: the bundled slice
  std::string dialects;  // comma-separated; engines take them in turn; empty: the release's
  // ADDR:PORT of a router service that decides, with its dashboard; stays up until interrupted.
  // Empty: none.
  std::string serve;
  bool json = false;
};

}  // namespace kvcast::tools
