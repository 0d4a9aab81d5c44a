// MemoryLog: an EventLog in memory, with the faults of a server. MirrorTarget: the state of a
// replica, for comparisons with the state of a relay.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/wire/wire.h"
#include "src/event_log/event_log.h"
#include "src/event_log/log_replica.h"
#include "src/residency/mirror.h"

namespace kvcast::event_log {

// The log that several MemoryLog objects share.
struct MemoryServer {
  std::map<uint64_t, LogMessage> messages;  // by position
  std::map<std::string, uint64_t> ids;      // positions by message id
  uint64_t last = 0;                        // position of the newest message
  size_t max_payload = 1000;
  bool up = true;
  // The server stores this number of messages, and then ends without an answer.
  std::optional<size_t> ends_after;
  std::optional<Announcement> announcement;
  uint64_t announcements = 0;

  void DeleteAll() {
    messages.clear();
    ids.clear();
  }
};

class MemoryLog final : public EventLog {
 public:
  explicit MemoryLog(MemoryServer& server) : server_(server) {}

  Result<LogEnd> End() override {
    if (!server_.up) return Down();
    LogEnd end{server_.last, std::nullopt};
    const auto found = server_.messages.find(server_.last);
    if (found != server_.messages.end()) end.header = found->second.header;
    return end;
  }
  Appended Append(uint64_t last, std::span<const NewMessage> messages) override {
    if (const auto hook = std::exchange(on_append, nullptr)) hook();
    if (!server_.up) return {AppendResult::kUnavailable, "down"};
    for (const NewMessage& message : messages) {
      if (server_.ends_after && (*server_.ends_after)-- == 0) {
        server_.ends_after.reset();
        server_.up = false;
        return {AppendResult::kUnavailable, "ended"};
      }
      if (server_.ids.contains(message.id)) {
        if (server_.ids[message.id] != last + 1) return {AppendResult::kOutOfPlace, "duplicate"};
      } else {
        if (server_.last != last) return {AppendResult::kOutOfPlace, "wrong last sequence"};
        server_.last = last + 1;
        server_.ids[message.id] = server_.last;
        server_.messages[server_.last] = {
            server_.last, message.header, {message.payload.begin(), message.payload.end()}};
      }
      ++last;
    }
    return {};
  }
  Status Purge(uint64_t position) override {
    if (!server_.up) return Down();
    const auto end = position > 1 ? server_.messages.lower_bound(position) : server_.messages.end();
    server_.messages.erase(server_.messages.begin(), end);
    return Status();
  }
  Status Announce(const std::string& header, std::span<const uint8_t> payload) override {
    if (!server_.up) return Down();
    server_.announcement =
        Announcement{++server_.announcements, header, {payload.begin(), payload.end()}};
    return Status();
  }
  size_t max_payload() const override { return server_.max_payload; }
  Result<uint64_t> Read(uint64_t from, int64_t, std::vector<LogMessage>& out) override {
    if (const auto hook = std::exchange(on_read, nullptr)) hook();
    if (!server_.up) return Down();
    auto next = server_.messages.lower_bound(from);
    for (size_t count = 0; next != server_.messages.end() && count < read_messages; ++next, ++count)
      out.push_back(next->second);
    return static_cast<uint64_t>(std::distance(next, server_.messages.end()));
  }
  std::optional<Announcement> LatestAnnouncement() override { return server_.announcement; }

  size_t read_messages = 1000;  // limit of one Read
  // Called once, during the next Append or Read. The log blocks meanwhile.
  std::function<void()> on_append;
  std::function<void()> on_read;

 private:
  static Status Down() { return {StatusCode::kUnavailable, "down"}; }

  MemoryServer& server_;
};

class MirrorTarget : public ReplicaTarget {
 public:
  bool Equals(const PublisherStatus& status) override {
    return known_ && status.has_digests && status.Totals() == totals();
  }
  bool Begin(RelayState state) override {
    mirror_ = std::make_unique<residency::Mirror>();
    known_ = state.state.status.has_digests;
    mark_ = state.mark;
    for (const PublishedPayload& part : state.state.parts) Apply(*part);
    return known_ == state.state.status.has_digests &&
           (!known_ || totals() == state.state.status.Totals());
  }
  void Add(std::span<const uint8_t> payload, const std::optional<EngineMark>& mark) override {
    ++batches_;
    if (mark) mark_ = mark;
    payload.empty() ? void(known_ = false) : Apply(payload);
  }

  ResidencyTotals totals() const { return mirror_->digest().Totals(); }
  bool known() const { return known_; }
  uint64_t batches() const { return batches_; }
  const std::optional<EngineMark>& mark() const { return mark_; }

 private:
  void Apply(std::span<const uint8_t> payload) {
    EventBatch batch;
    DecodeCounts counts;
    known_ = DecodeBatch(payload, WireLimits(), batch, counts).ok() && known_;
    mirror_->Apply(batch);
  }

  std::unique_ptr<residency::Mirror> mirror_ = std::make_unique<residency::Mirror>();
  bool known_ = true;
  uint64_t batches_ = 0;
  std::optional<EngineMark> mark_;
};

// Reads the log from its first message to its end.
inline void ReadAll(EventLog& log, LogReplica& replica) {
  std::vector<LogMessage> messages;
  uint64_t from = 1;
  while (true) {
    messages.clear();
    if (!log.Read(from, 0, messages).ok() || messages.empty()) return;
    for (LogMessage& message : messages) {
      from = message.position + 1;
      replica.Apply(std::move(message));
    }
  }
}

}  // namespace kvcast::event_log
