// Feedback: the reports of POST /v1/feedback.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast::router {

// A report about a routed request, or about a worker's queue.
struct Feedback {
  enum class Event : uint8_t { kAdmitted, kFirstToken, kFinished, kLoad };
  Event event = Event::kAdmitted;
  std::string request_id;       // kAdmitted, kFirstToken, kFinished: of a decision
  int64_t reused_tokens = 0;    // kAdmitted: tokens reused on the GPU
  std::string worker;           // kLoad
  int64_t queued_requests = 0;  // kLoad
  // kAdmitted: the sequence number of the worker's next batch when the worker looked up the prefix.
  // nullopt: not reported.
  std::optional<uint64_t> next_seq;
};

inline constexpr int64_t kMaxQueuedRequests = 1 << 20;

// One of
//   {"request_id", "event": "admitted", "reused_tokens"[, "next_seq"]}
//   {"request_id", "event": "first_token" or "finished"}
//   {"worker", "event": "load", "queued_requests"}
// Not ok: one line that names the wrong member.
Result<Feedback> ParseFeedback(std::string_view body);

}  // namespace kvcast::router
