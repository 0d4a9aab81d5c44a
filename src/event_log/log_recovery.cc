// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_recovery.h"

#include <memory>
#include <utility>
#include <vector>

#include "src/event_log/log_replica.h"

namespace kvcast::event_log {
namespace {

// If no message arrives for this time, the log has no more messages, or cannot be read.
constexpr int64_t kEndWaitMs = 1000;
// Maximum number of attempts. An attempt fails if the writer of the log deletes messages meanwhile.
// It also fails if the log lacks a batch and no earlier attempt has noticed this.
constexpr int kMaxTries = 5;

class RecoveryTarget final : public ReplicaTarget {
 public:
  bool Equals(const PublisherStatus&) override { return false; }
  bool Begin(RelayState state) override {
    recovery_ = {};
    recovery_.mark = state.mark;
    recovery_.state = std::make_shared<const PublishedState>(std::move(state.state));
    return true;
  }
  void Add(std::span<const uint8_t> payload, const std::optional<EngineMark>& mark) override {
    recovery_.batches.push_back(
        std::make_shared<const std::vector<uint8_t>>(payload.begin(), payload.end()));
    if (mark) recovery_.mark = mark;
  }
  RelayRecovery Take() { return std::move(recovery_); }

 private:
  RelayRecovery recovery_;
};

}  // namespace

// The state before a missing batch is as good as the state of a log that ends there. Its mark is
// that of its latest batch. So the relay gets the missing batch and all later ones from the engine,
// or drops the state.
Result<std::optional<RelayRecovery>> ReadRecovery(EventLog& log) {
  const Result<LogEnd> end = log.End();
  if (!end.ok()) return end.status();
  RecoveryTarget target;
  LogReplica replica(target);
  for (int tries = 0; tries < kMaxTries; ++tries) {
    target = {};
    replica.Restart();
    for (uint64_t from = 1; from <= end->position && !replica.lost();) {
      std::vector<LogMessage> messages;
      const Result<uint64_t> read = log.Read(from, kEndWaitMs, messages);
      if (!read.ok()) return read.status();
      if (messages.empty()) {
        if (!end->header) break;  // all messages were deleted
        return Status(StatusCode::kUnavailable, "no message of the log arrived in time");
      }
      for (LogMessage& message : messages) {
        from = message.position + 1;
        replica.Apply(std::move(message));
      }
    }
    if (!replica.lost()) break;
  }
  RelayRecovery recovery = target.Take();
  if (!recovery.state || !recovery.mark) return std::optional<RelayRecovery>();
  return std::optional(std::move(recovery));
}

}  // namespace kvcast::event_log
