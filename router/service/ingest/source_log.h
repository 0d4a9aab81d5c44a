// SourceLog: writes the states, resets and registrations of sources to the log of the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "router/service/ingest/fleet.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// The origin of a change. The texts are not owned.
struct ChangeOrigin {
  std::string_view peer;         // address of the HTTP client; empty: no client made the change
  std::string_view role;         // role of the client's token; empty: the router has no tokens
  std::string_view traceparent;  // of the client's request; empty: none
  std::string_view list = "configuration";  // without a client: the list that changed
};

// Thread-safe. Without a logger, nothing is written.
class SourceLog {
 public:
  explicit SourceLog(Logger* log = nullptr) : log_(log) {}

  // Call after a worker's state may have changed. `stream`: its present status. Writes a line if
  // the state differs from the state in the latest line. In state kConnecting, also writes a line
  // if only the reason differs.
  void NoteState(const FleetWorker& worker, const SourceStatus& stream);
  // Does the same for all workers of the fleet, and writes their failed handshakes. Must be called
  // once per second, because no other call notes the states of feeds, and the exceptions of
  // WorkerIngest::State.
  void Sample(const Fleet& fleet);
  void NoteDropped(const FleetWorker& worker, ResetReason reason, uint64_t residencies);
  void NoteSnapshot(const FleetWorker& worker);
  void NoteAdded(const WorkerRegistration& source, const ChangeOrigin& origin);
  // The router did not register a source. `name`: as the client gave it; may be empty.
  void NoteRefused(std::string_view name, const ChangeOrigin& origin, std::string_view reason);
  void NoteRemoved(const std::string& name, const ChangeOrigin& origin);
  // The router cannot follow a source of a list.
  void NoteFailed(const std::string& name, const ChangeOrigin& origin, std::string_view reason);
  // Forgets the worker.
  void Forget(WorkerId worker);

 private:
  struct LoggedState {
    SourceState state = SourceState::kConnecting;
    SourceReason reason = SourceReason::kJoining;
    uint64_t failed_handshakes = 0;
  };
  void LogChange(const FleetWorker& worker, const SourceStatus& stream) KV_REQUIRES(mutex_);

  Logger* const log_;
  Mutex mutex_;
  std::unordered_map<WorkerId, LoggedState> logged_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
