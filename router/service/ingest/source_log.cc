// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/source_log.h"

#include <algorithm>
#include <utility>

#include "router/service/ingest/source_policy.h"

namespace kvcast::router {
namespace {

// True: in this state, the answers for the worker are missing, uncertain or incomplete.
bool IsDegraded(SourceState state) {
  return state == SourceState::kSuspect || state == SourceState::kCleared ||
         state == SourceState::kStale || state == SourceState::kQuarantined;
}

// Returns the scheme, host and port of an endpoint. The other parts of a URL may contain a password
// or a token.
std::string AddressOf(const std::string& endpoint) {
  const size_t scheme = endpoint.find("://");
  if (scheme == std::string::npos || endpoint.starts_with("ipc:")) return endpoint;
  const size_t host = scheme + 3;
  const size_t end = std::min(endpoint.find_first_of("/?#", host), endpoint.size());
  const size_t user = endpoint.rfind('@', end);
  const size_t begin = user != std::string::npos && user >= host ? user + 1 : host;
  return endpoint.substr(0, host) + endpoint.substr(begin, end - begin);
}

std::string_view ByOf(const ChangeOrigin& origin) {
  return origin.peer.empty() ? origin.list : "client";
}

}  // namespace

void SourceLog::NoteState(const FleetWorker& worker, const SourceStatus& stream) {
  if (log_ == nullptr) return;
  const MutexLock lock(mutex_);
  LogChange(worker, stream);
}

// Reads the status under the lock, so that lines are written in the order of the statuses.
void SourceLog::Sample(const Fleet& fleet) {
  if (log_ == nullptr) return;
  for (const FleetView view = fleet.view(); const auto& worker : view->workers) {
    const MutexLock lock(mutex_);
    const SourceStatus stream = fleet.stream(worker->id);
    // If the worker was removed after the call of view(), its stream is kConnecting without a
    // reason.
    const bool followed =
        stream.state != SourceState::kConnecting || stream.reason != SourceReason::kNone;
    if (!followed) continue;
    LogChange(*worker, stream);
    uint64_t& logged = logged_[worker->id].failed_handshakes;
    if (stream.failed_handshakes <= logged) continue;
    logged = stream.failed_handshakes;
    log_->Write(log_events::kSourceHandshakeFailed, worker->config.worker.name,
                {{"failed", stream.failed_handshakes},
                 {"reason",
                  "the publisher has another key or no key, or does not accept the router's key"}});
  }
}

void SourceLog::LogChange(const FleetWorker& worker, const SourceStatus& stream) {
  LoggedState& logged = logged_[worker.id];
  const SourceState state = worker.source->State(stream.state);
  const bool has_new_reason = state == SourceState::kConnecting && stream.reason != logged.reason;
  if (state == logged.state && !has_new_reason) return;
  const SourceState from = std::exchange(logged.state, state);
  logged.reason = stream.reason;
  const LogEvent event =
      log_events::kSourceState.At(IsDegraded(state) ? LogLevel::kWarning : LogLevel::kInfo);
  // True: the stream is synced, but the source is suspect; see WorkerIngest::State.
  const bool inexact = state != stream.state;
  log_->Write(event, worker.config.worker.name,
              {{"from", SourceStateName(from)},
               {"to", SourceStateName(state)},
               {"reason", SourceReasonName(inexact ? SourceReason::kBadEvents : stream.reason)},
               {"hint", SourceHint(stream)},
               {"weight", inexact ? 0.0 : stream.weight},
               {"lag", stream.lag},
               {"next_seq", stream.next_seq},
               {"lost", stream.lost},
               {"resets", stream.resets},
               {"residencies", worker.source->index_counters().residencies}});
}

void SourceLog::NoteDropped(const FleetWorker& worker, ResetReason reason, uint64_t residencies) {
  if (log_ == nullptr) return;
  const SourceCounters counters = worker.source->counters();
  const bool restart = reason == ResetReason::kRestart;
  log_->Write(log_events::kSourceReset.At(restart ? LogLevel::kInfo : LogLevel::kWarning),
              worker.config.worker.name,
              {{"reason", ResetReasonName(reason)},
               {"residencies", residencies},
               {"restarts", counters.restarts},
               {"losses", counters.losses},
               {"oversized", counters.oversized}});
}

void SourceLog::NoteSnapshot(const FleetWorker& worker) {
  if (log_ == nullptr) return;
  log_->Write(log_events::kSourceSnapshot, worker.config.worker.name,
              {{"residencies", worker.source->index_counters().residencies}});
}

void SourceLog::NoteAdded(const WorkerRegistration& source, const ChangeOrigin& origin) {
  if (log_ == nullptr) return;
  const std::string& name = source.worker.name;
  log_->Write(log_events::kSourceAdded, name,
              {{"by", ByOf(origin)},
               {"peer", origin.peer},
               {"role", origin.role},
               {"traceparent", origin.traceparent},
               {"endpoint", AddressOf(source.endpoint)},
               {"security", SecurityOf(source)},
               {"model", source.model},
               {"ranks", source.data_parallel_size}});
  if (!source.insecure) return;
  log_->Write(log_events::kSourceInsecure, name,
              {{"endpoint", AddressOf(source.endpoint)},
               {"reason", "its events are neither encrypted nor authenticated"}});
}

void SourceLog::NoteRefused(std::string_view name, const ChangeOrigin& origin,
                            std::string_view reason) {
  if (log_ == nullptr) return;
  log_->Write(log_events::kSourceRefused, origin.peer,
              {{"name", name},
               {"role", origin.role},
               {"traceparent", origin.traceparent},
               {"reason", reason}});
}

void SourceLog::NoteRemoved(const std::string& name, const ChangeOrigin& origin) {
  if (log_ == nullptr) return;
  log_->Write(log_events::kSourceRemoved, name,
              {{"by", ByOf(origin)},
               {"peer", origin.peer},
               {"role", origin.role},
               {"traceparent", origin.traceparent}});
}

void SourceLog::NoteFailed(const std::string& name, const ChangeOrigin& origin,
                           std::string_view reason) {
  if (log_ == nullptr) return;
  log_->Write(log_events::kSourceFailed, name, {{"by", ByOf(origin)}, {"reason", reason}});
}

void SourceLog::Forget(WorkerId worker) {
  const MutexLock lock(mutex_);
  logged_.erase(worker);
}

}  // namespace kvcast::router
