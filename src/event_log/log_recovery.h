// ReadRecovery: reads the log of a relay, and returns a state with which the relay can continue.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kvcast/core/status.h"
#include "kvcast/stream/relay_history.h"
#include "src/event_log/event_log.h"

namespace kvcast::event_log {

// Reads the log to its end. If batches are missing from the log, the result has the latest complete
// snapshot after them, or without such a snapshot the state before the missing batches. nullopt:
// the log has no complete snapshot, or no EngineMark. Error: the log cannot be read. May block for
// some seconds.
Result<std::optional<RelayRecovery>> ReadRecovery(EventLog& log);

}  // namespace kvcast::event_log
