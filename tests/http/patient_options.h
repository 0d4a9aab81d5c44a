// Server options whose timeouts do not expire on a busy machine. A test sets the timeout that it
// checks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/http/http_server.h"

namespace kvcast::testing {

inline HttpOptions PatientOptions() {
  constexpr int64_t kHourMs = 3600000;
  HttpOptions options;
  options.request_timeout_ms = options.write_timeout_ms = kHourMs;
  options.reply_timeout_ms = options.idle_timeout_ms = kHourMs;
  options.abandoned_after_ms = kHourMs;
  options.drain_timeout_ms = 60000;
  return options;
}

}  // namespace kvcast::testing
