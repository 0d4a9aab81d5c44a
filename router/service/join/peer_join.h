// JoinPeer: a starting router takes the state of a running one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "router/service/discovery/http_client.h"
#include "router/service/join/peer_options.h"
#include "router/service/join/state_transfer.h"
#include "router/service/state/saved_workers.h"
#include "src/base/logger.h"

namespace kvcast::router {

// How a join has ended, for metrics.
struct PeerJoinReport {
  TransferEnd end = TransferEnd::kComplete;
  double seconds = 0;
  uint64_t bytes = 0;
  size_t workers = 0;  // in the state of the other router
};

struct PeerJoin {
  PeerJoinReport report;
  uint64_t secret = 0;  // of the other router; 0: the join has failed
};

// kInvalidArgument: `url` is not valid as PeerOptions::url. The message is one line.
Status CheckPeer(const PeerOptions& options);

// Blocks until the state has arrived, or until the state cannot arrive in time. Sends the request
// again if the other router is busy. If the join fails, `saved` does not change. `takes`: see
// TransferState. `log` may be nullptr. REQUIRES: the options have a URL.
PeerJoin JoinPeer(const PeerOptions& options, const HttpClient& client,
                  const std::function<bool(uint64_t secret)>& takes, SavedWorkers& saved,
                  Logger* log);

}  // namespace kvcast::router
