// The process of the attacking sources of `kvcast bench hostile`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/service/hostile_batches.h"
#include "apps/support/forked_process.h"

namespace kvcast::tools {

struct HostileSent {
  uint64_t batches = 0;
  uint64_t bytes = 0;
};

// Writes a LoadEndpoints for each source to `out`, and waits for a byte on `in`. Then sends batches
// as fast as the router takes them, until the next byte on `in`. With Attack::unanswered_names,
// sends no batches. Then writes a HostileSent to `out`. Returns the exit code.
int SendHostile(const Attack& attack, const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
