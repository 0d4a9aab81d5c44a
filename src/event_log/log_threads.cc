// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_threads.h"

#include <utility>

namespace kvcast::event_log {
namespace {

constexpr int64_t kReadWaitMs = 50;
// Pause of a writer after a step without new batches.
constexpr int64_t kIdleMs = 5;
// Pause of a writer or a bridge that cannot use the log now.
constexpr int64_t kPauseMs = 100;

// Calls `on_state` if the state or the error differs from `known`.
template <typename LogStatus>
void Report(LogStatus status, LogStatus& known,
            const std::function<void(const LogStatus&)>& on_state) {
  const bool changed = status.state != known.state || status.error != known.error;
  known = std::move(status);
  if (changed && on_state) on_state(known);
}

}  // namespace

std::unique_ptr<Repeater> RunInThread(LogWriter& writer,
                                      std::function<void(const WriterStatus&)> on_state) {
  const auto step = [&writer, on_state = std::move(on_state), known = WriterStatus()]() mutable {
    const bool more = writer.Step();
    Report(writer.status(), known, on_state);
    if (more) return int64_t{0};
    return known.state == WriterState::kWriting ? kIdleMs : kPauseMs;
  };
  return std::make_unique<Repeater>(0, step);
}

std::unique_ptr<Repeater> RunInThread(LogBridge& bridge,
                                      std::function<void(const BridgeStatus&)> on_state) {
  const auto step = [&bridge, on_state = std::move(on_state), known = BridgeStatus()]() mutable {
    const bool read = bridge.Step(kReadWaitMs);
    Report(bridge.status(), known, on_state);
    return read ? int64_t{0} : kPauseMs;
  };
  return std::make_unique<Repeater>(0, step);
}

}  // namespace kvcast::event_log
