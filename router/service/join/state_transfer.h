// TransferState: sends one request for the state of another router, and reads the state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/http_client.h"
#include "router/service/join/peer_options.h"
#include "router/service/join/state_stream.h"
#include "router/service/state/state_file.h"

namespace kvcast::router {

enum class TransferEnd : uint8_t {
  kComplete,
  kUnreachable,  // no answer
  kCredentials,  // 401 or 403, or the token file cannot be read
  kNotServed,    // the address has no such route
  kBusy,         // the other router sends its state to a third router
  kBadAnswer,    // another status
  kVersion,      // another version of saved state, or another byte order
  kDamaged,      // the state is damaged or not complete
  kTooLarge,     // more than StateStreamReader::kMaxBytes, or no memory
  kTimeout,      // not complete in time, or no byte for too long
  kOtherSecret,  // this router has saved states that belong to another secret
  kStopped,      // this router must end
};
inline constexpr size_t kTransferEnds = 12;
// The name for metrics and the log, such as "unreachable".
std::string_view TransferEndName(TransferEnd end);

struct TransferredState {
  TransferEnd end = TransferEnd::kComplete;
  std::string error;  // one line; empty: complete
  uint64_t bytes = 0;
  // The members below are set if the state is complete.
  StateStreamHead head;
  std::vector<std::shared_ptr<const StateFile>> shards;
};

// Blocks until the state has arrived, but at most for `limit_ms`. `takes` returns false if this
// router cannot use content keys of this secret. The state is complete only if all shards are
// valid.
TransferredState TransferState(const PeerOptions& options, const HttpClient& client,
                               int64_t limit_ms, const std::function<bool(uint64_t secret)>& takes);

}  // namespace kvcast::router
