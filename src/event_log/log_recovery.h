// ReadRecovery: the state with which a relay can go on, from its log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kvcast/core/status.h"
#include "kvcast/stream/relay_history.h"
#include "src/event_log/event_log.h"

namespace kvcast::event_log {

// Reads the log to its end. nullopt: the log has no complete snapshot, or does not name a place in
// the stream of the engine. Error: the log cannot be read. May block for some seconds.
Result<std::optional<RelayRecovery>> ReadRecovery(EventLog& log);

}  // namespace kvcast::event_log
