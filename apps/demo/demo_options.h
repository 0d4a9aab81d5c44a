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
  // Seconds of the trace per second of real time. 0: a run takes at most about 30 s, or 120 s
  // with `serve`.
  double speed = 0;
  std::string trace;  // empty: the bundled slice
  // Comma-separated list. The engines take the dialects in turn. `all`: every dialect that can
  // represent the model's events. Empty: the layout of `cache.rules`.
  std::string dialects;
  // ADDR:PORT where the router service of the run listens. It serves its dashboard until the demo
  // is interrupted. Empty: no dashboard.
  std::string serve;
  bool curve = false;                   // the streams of the engines are encrypted (CURVE)
  LogOptions log = {.level = "error"};  // of the service and of the engines
  bool json = false;
};

}  // namespace kvcast::tools
