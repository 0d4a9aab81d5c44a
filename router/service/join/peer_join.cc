// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/peer_join.h"

#include <algorithm>
#include <utility>

#include "router/service/discovery/kubernetes_source.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace kvcast::router {
namespace {

constexpr int64_t kBusyPauseMs = 100;

void PauseForBusyPeer() {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  for (const int64_t until_us = SteadyUs() + kBusyPauseMs * 1000;
       never.WaitUntil(mutex, until_us);) {
  }
}

// The URL without a path, which could contain a secret.
std::string ServerOf(const std::string& url) {
  const size_t host = url.find("://");
  return url.substr(0, url.find('/', host == std::string::npos ? 0 : host + 3));
}

}  // namespace

Status CheckPeer(const PeerOptions& options) {
  if (options.url.empty()) return Status();
  const Status status = CheckApiUrl(options.url);
  return status.ok() ? status : Status(status.code(), "peer: " + status.message());
}

PeerJoin JoinPeer(const PeerOptions& options, const HttpClient& client,
                  const std::function<bool(uint64_t secret)>& takes, SavedWorkers& saved,
                  Logger* log) {
  const int64_t begin_us = SteadyUs();
  TransferredState state;
  for (;;) {
    const int64_t left_ms = options.timeout_ms - (SteadyUs() - begin_us) / 1000;
    state = TransferState(options, client, std::max<int64_t>(left_ms, 1), takes);
    const bool stops = options.stopping && options.stopping();
    const bool no_time = SteadyUs() - begin_us + 2000 * kBusyPauseMs >= options.timeout_ms * 1000;
    if (state.end != TransferEnd::kBusy || stops || no_time) break;
    PauseForBusyPeer();
  }
  PeerJoin join;
  join.report.end = state.end;
  join.report.bytes = state.bytes;
  const bool complete = state.end == TransferEnd::kComplete;
  if (complete) join.secret = state.head.secret;
  for (auto& shard : state.shards) {
    join.report.workers += shard->workers().size();
    saved.AddFromPeer(std::move(shard));
  }
  join.report.seconds = static_cast<double>(SteadyUs() - begin_us) / 1e6;
  if (log == nullptr) return join;
  const std::string server = ServerOf(options.url);
  if (complete) {
    log->Write(log_events::kPeerJoined, server,
               {{"version", state.head.version},
                {"workers", join.report.workers},
                {"bytes", join.report.bytes},
                {"seconds", join.report.seconds}});
  } else {
    log->Write(log_events::kPeerJoinFailed, server,
               {{"reason", TransferEndName(state.end)},
                {"error", state.error},
                {"seconds", join.report.seconds}});
  }
  return join;
}

}  // namespace kvcast::router
