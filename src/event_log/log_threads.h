// Threads that run a writer or a bridge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "src/base/repeater.h"
#include "src/event_log/log_bridge.h"
#include "src/event_log/log_writer.h"

namespace kvcast::event_log {

// Runs the writer or the bridge in a thread, until the result is destroyed. The first argument must
// outlive the result. `on_state` is called on the thread after the state or the error has changed.
// Throws std::system_error if the thread cannot start.
std::unique_ptr<Repeater> RunInThread(LogWriter& writer,
                                      std::function<void(const WriterStatus&)> on_state);
std::unique_ptr<Repeater> RunInThread(LogBridge& bridge,
                                      std::function<void(const BridgeStatus&)> on_state);

}  // namespace kvcast::event_log
