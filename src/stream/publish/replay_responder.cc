// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_responder.h"

#include <algorithm>
#include <utility>

namespace kvcast::stream {

using residency::ExtensionRequest;
using residency::Verb;

RequestKind RequestKindOf(Frame start) {
  if (residency::IsLegacySnapshotRequest(start)) return RequestKind::kSnapshot;
  const auto request = residency::ParseRequest(start);
  if (!request || request->verb == Verb::kReplay) return RequestKind::kReplay;
  return request->verb == Verb::kStatus ? RequestKind::kStatus : RequestKind::kSnapshot;
}

Answer ReplayResponder::Begin(Frame start) {
  if (state_ != nullptr) {
    if (const auto request = residency::ParseRequest(start)) return BeginExtended(*request);
    if (residency::IsLegacySnapshotRequest(start)) {
      return {.snapshot = state_->Snapshot(residency::BucketMask().set())};
    }
  }
  return {.next = ParseStart(start), .end = ring_.next_seq()};
}

Answer ReplayResponder::BeginExtended(const ExtensionRequest& request) {
  Answer answer;
  answer.status_at_end = true;
  switch (request.verb) {
    case Verb::kStatus:
      answer.snapshot.emplace().status = state_->Status(/*buckets=*/request.argument != 0);
      break;
    case Verb::kSnapshot:
      answer.snapshot = state_->Snapshot(residency::BucketsOf(request.argument));
      break;
    case Verb::kReplay:
      answer.next = request.argument;
      answer.end = ring_.next_seq();
      if (request.count > 0 && answer.next < answer.end) {
        answer.end = std::min(answer.end, answer.next + request.count);
      }
      break;
  }
  return answer;
}

void ReplayResponder::Read(const Answer& answer, size_t limit, std::vector<RingEntry>& out) const {
  if (!answer.snapshot) return ring_.Read(answer.next, answer.end, limit, out);
  const std::vector<Payload>& parts = answer.snapshot->parts;
  const size_t end = answer.parts_sent + std::min(limit, parts.size() - answer.parts_sent);
  for (size_t part = answer.parts_sent; part < end; ++part) {
    out.push_back({answer.snapshot->status.next_seq, parts[part]});
  }
}

void ReplayResponder::Sent(Answer& answer, const RingEntry& reply) const {
  if (answer.snapshot) {
    ++answer.parts_sent;
  } else {
    answer.next = reply.seq + 1;
  }
}

Payload ReplayResponder::EndPayload(const Answer& answer) const {
  if (!answer.status_at_end) return nullptr;
  const residency::PublisherStatus status =
      answer.snapshot ? answer.snapshot->status : state_->Status(/*buckets=*/false);
  return std::make_shared<const std::vector<uint8_t>>(residency::EncodeStatus(status));
}

}  // namespace kvcast::stream
