// EventLog: the durable log of one source, as LogWriter and LogBridge use it. NatsLog implements it
// with a JetStream stream. The tests implement it in memory.
//
// A log is a sequence of messages. Each message has a position. Positions rise by one with each
// message, and are never used again. The first messages may have been deleted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::event_log {

// A message to store. The payload must stay valid during the call. If the log has stored a message
// with the same id a short time before, the log does not store the message again.
struct NewMessage {
  std::string id;
  std::string header;  // a line of text
  std::span<const uint8_t> payload;
};

struct LogMessage {
  uint64_t position = 0;
  std::string header;
  std::vector<uint8_t> payload;
};

struct LogEnd {
  uint64_t position = 0;              // of the latest message that was ever stored; 0: none
  std::optional<std::string> header;  // nullopt: this message was deleted
};

// A message that is not stored. Only the readers that are connected get it.
struct Announcement {
  uint64_t count = 0;  // announcements that the EventLog has received, including this announcement
  std::string header;
  std::vector<uint8_t> payload;
};

enum class AppendResult : uint8_t {
  kStored,
  // The last message of the log is not the message at `last`. The first messages of the call may be
  // stored.
  kOutOfPlace,
  // The log cannot be reached, or has not answered in time. The log may have stored some or all of
  // the messages, and may store messages after this call.
  kUnavailable,
};

struct Appended {
  AppendResult result = AppendResult::kStored;
  std::string error;  // the cause, in one line; empty: kStored
};

// All calls may block for some seconds. One call at a time, on any thread.
class EventLog {
 public:
  virtual ~EventLog() = default;

  // The end of the log. An error names the cause: no connection, wrong credentials, or a log that
  // cannot be made.
  virtual Result<LogEnd> End() = 0;
  // Stores the messages at the positions from last + 1 on. Each message is stored only if its
  // predecessor has the position before it.
  virtual Appended Append(uint64_t last, std::span<const NewMessage> messages) = 0;
  // Deletes the messages at positions below `position`. REQUIRES: position > 1. JetStream deletes
  // all messages if it is asked to delete those below 1.
  virtual Status Purge(uint64_t position) = 0;
  // Sends an announcement. Its payload must stay valid during the call.
  virtual Status Announce(const std::string& header, std::span<const uint8_t> payload) = 0;
  // The maximum number of bytes of a payload. Known after a successful End.
  virtual size_t max_payload() const = 0;

  // Appends messages at positions from `from` on to `out`, in order. Waits up to `wait_ms` for the
  // first message. A call is faster if `from` follows the last message of the previous call.
  // Returns the number of messages that the log had after the last appended message; 0 if no
  // message was appended. kNotFound: the log does not exist yet.
  virtual Result<uint64_t> Read(uint64_t from, int64_t wait_ms, std::vector<LogMessage>& out) = 0;
  // The latest announcement; nullopt: none was received.
  virtual std::optional<Announcement> LatestAnnouncement() = 0;
};

}  // namespace kvcast::event_log
