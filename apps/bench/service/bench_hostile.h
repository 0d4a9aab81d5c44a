// The benchmark of attacks: the delay of the batches of good sources while another source attacks
// the router. The ingestion is the same as in `kvcast router`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/bench/service/bench_freshness.h"
#include "apps/bench/service/hostile_batches.h"
#include "apps/bench/service/hostile_load.h"
#include "kvcast/core/status.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast::tools {

struct HostileResult {
  // Delays of the good sources, from publish() until the index has the batch.
  Quantiles visible;
  Quantiles visible_full_speed;  // without the batches that overlap a slow time of the machine
  double slow_share = 0;         // slow times of the machine, divided by the measured time
  uint64_t published = 0;        // batches of the good sources
  uint64_t applied = 0;          // of them, applied by the index; the other batches were lost
  double rate = 0;               // batches per second of all good sources
  HostileSent sent;              // by the attacking sources
  uint64_t hostile_applied = 0;  // batches of the attacking sources that were applied
  SourceState hostile_state = SourceState::kConnecting;  // of the first attacker, at the end
  double resident_mib = 0;                               // maximum memory of the router process
};

// `attack` nullptr: no source attacks. `good`: the load of the good sources. The function forks,
// and the router runs in a process of its own, so this process must have one thread. Not ok: no
// sockets, or another process failed.
Result<HostileResult> RunHostileBench(const Attack* attack, const FreshnessConfig& good,
                                      size_t ingest_threads);

}  // namespace kvcast::tools
