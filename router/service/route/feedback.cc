// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/feedback.h"

#include <algorithm>
#include <array>

#include "router/service/json/json_fields.h"
#include "router/service/route/query.h"

namespace kvcast::router {
namespace {

// Reads an integer from 0 to `max`.
Status ReadCount(const Json& value, const std::string& name, int64_t max, int64_t& out) {
  int64_t count = 0;
  if (Status status = ReadInteger(value, name, 0, count); !status.ok()) return status;
  if (count > max) return BadField(name + ": must be at most " + std::to_string(max));
  out = count;
  return Status();
}

Status ReadMember(const std::string& name, const Json& value, std::string& event,
                  Feedback& feedback) {
  if (name == "request_id") return ReadText(value, name, feedback.request_id);
  if (name == "event") return ReadText(value, name, event);
  if (name == "reused_tokens") {
    return ReadCount(value, name, kMaxPromptTokens, feedback.reused_tokens);
  }
  if (name == "next_seq") {
    int64_t next_seq = 0;
    const Status status = ReadInteger(value, name, 0, next_seq);
    if (status.ok()) feedback.next_seq = static_cast<uint64_t>(next_seq);
    return status;
  }
  if (name == "worker") return ReadText(value, name, feedback.worker);
  if (name == "queued_requests") {
    return ReadCount(value, name, kMaxQueuedRequests, feedback.queued_requests);
  }
  return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
}

}  // namespace

Result<Feedback> ParseFeedback(std::string_view body) {
  const Result<Json> json = ParseObject(body, 2);
  if (!json.ok()) return json.status();
  Feedback feedback;
  std::string event;
  for (const auto& [name, value] : json->items()) {
    Status status = ReadMember(name, value, event, feedback);
    if (!status.ok()) return status;
  }
  constexpr std::array kEvents = {"admitted", "first_token", "finished", "load"};
  const auto it = std::find(kEvents.begin(), kEvents.end(), event);
  if (it == kEvents.end()) {
    return BadField("event: must be admitted, first_token, finished or load");
  }
  feedback.event = static_cast<Feedback::Event>(it - kEvents.begin());
  const bool load = feedback.event == Feedback::Event::kLoad;
  if (json->contains("worker") != load || json->contains("request_id") == load) {
    return BadField("event load requires worker; all other events require request_id");
  }
  if (json->contains("queued_requests") != load)
    return BadField("queued_requests: required with event load, and allowed only there");
  if (json->contains("reused_tokens") != (feedback.event == Feedback::Event::kAdmitted)) {
    return BadField("reused_tokens: required with event admitted, and allowed only there");
  }
  if (feedback.next_seq && feedback.event != Feedback::Event::kAdmitted) {
    return BadField("next_seq: allowed only with event admitted");
  }
  return feedback;
}

}  // namespace kvcast::router
