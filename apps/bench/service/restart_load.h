// The publisher process of the restart benchmark.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/service/bench_restart.h"
#include "apps/support/forked_process.h"

namespace kvcast::tools {

// Maximum time for which the processes of the benchmark wait for a command.
inline constexpr int kCommandPatienceMs = 3'600'000;

// The state of a source while the publishers are stopped.
struct SourceCount {
  // Blocks since the start, see PromptSource.
  uint64_t stored = 0;
  uint64_t removed = 0;
  uint64_t batches = 0;  // includes heartbeats
};

// Fills the sources, and writes a LoadEndpoints for each to `out`. Then, for each pair of bytes on
// `in`: publishes from the first byte until the second byte, and writes the rate in batches per
// second (double) and a SourceCount for each source. Ends when `in` is closed. Returns the exit
// code.
int PublishForRestarts(const RestartConfig& config, const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
