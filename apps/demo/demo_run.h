// The live run of the demo: engine processes, a router service and a trace.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/demo/demo_audit.h"
#include "apps/demo/demo_options.h"
#include "apps/engine/peer_dialect.h"
#include "apps/support/trace.h"
#include "kvcast/core/status.h"
#include "kvcast/router/scheme_detector.h"

namespace kvcast::tools {

struct EngineResult {
  std::string name;
  PeerDialect dialect;
  AuditTotals audit;
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // on the GPU
  int64_t loaded_tokens = 0;  // from host memory
  int64_t preempted = 0;
  int64_t recomputed_after_preemption = 0;
};

// Compares the prediction of the routing decision with the engine's hit at admission. Only the
// delay of events causes a difference.
struct LiveError {
  int64_t compared = 0;
  int64_t equal = 0;
  int64_t over_tokens = 0;
  int64_t under_tokens = 0;
};

// Compares each answer whose `exact` is true to the engine's hit at admission. An answer counts
// only if the engine published no batch between the answer and the admission.
struct AnswerError {
  int64_t compared = 0;
  int64_t equal = 0;
};

struct RunResult {
  std::vector<EngineResult> engines;
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;   // on the GPU
  int64_t loaded_tokens = 0;   // from host memory
  int64_t checked_blocks = 0;  // reused blocks whose bytes were checked
  int64_t wrong_blocks = 0;    // checked blocks with wrong bytes
  int64_t refused = 0;
  AuditTotals audit;
  LiveError live;
  AnswerError answers;
  uint64_t batches = 0;
  uint64_t event_bytes = 0;
  uint64_t lost_batches = 0;
  uint64_t resets = 0;  // how often the service forgot the state of an engine
  uint64_t reconnects = 0;
  // One entry per engine, in the order of `engines`. Ignore the entry of an engine whose dialect is
  // not of_engine(): the router cannot compute the hashes of this engine.
  std::vector<SchemeVerdict> schemes;
  double seconds = 0;
};

// Starts the engines and the service, routes the whole trace by arrival time, waits until all
// requests are done, and stops the engines. `speed` is in seconds of the trace per second of real
// time. With options.serve, the run ends only with an error or a stop signal. Not ok: an engine
// ended, the service could not start or could not read all events, the run was interrupted, no
// engine sent a message for too long, or batches of an engine were missing.
Result<RunResult> RunRouted(const DemoOptions& options, const std::vector<TraceRequest>& trace,
                            double speed);

}  // namespace kvcast::tools
