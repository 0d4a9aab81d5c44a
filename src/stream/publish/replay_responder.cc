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
  return request->verb == Verb::kSnapshot ? RequestKind::kSnapshot : RequestKind::kStatus;
}

bool ReplayResponder::IsShared(const residency::BucketMask& buckets, uint64_t arrival) const {
  // A later request may come from a client that has seen later batches than the snapshot.
  return latest_.snapshot != nullptr && latest_.buckets == buckets && arrival < latest_.arrivals;
}

bool ReplayResponder::MakesSnapshot(Frame start, uint64_t arrival) const {
  if (state_ == nullptr || RequestKindOf(start) != RequestKind::kSnapshot) return false;
  const auto request = residency::ParseRequest(start);
  const residency::BucketMask buckets =
      request ? residency::BucketsOf(request->argument) : residency::BucketMask().set();
  return !IsShared(buckets, arrival);
}

std::shared_ptr<StateSnapshot> ReplayResponder::Snapshot(const residency::BucketMask& buckets,
                                                         uint64_t arrival) {
  if (!IsShared(buckets, arrival)) {
    ++snapshots_;
    latest_ = {std::make_shared<StateSnapshot>(state_->Snapshot(buckets)), buckets, arrivals_};
  }
  return latest_.snapshot;
}

Answer ReplayResponder::Begin(Frame start, uint64_t arrival) {
  if (state_ != nullptr) {
    if (const auto request = residency::ParseRequest(start); request && CanAnswer(*request)) {
      return BeginExtended(*request, arrival);
    }
    if (residency::IsLegacySnapshotRequest(start)) {
      return {.snapshot = Snapshot(residency::BucketMask().set(), arrival)};
    }
  }
  return {.next = ParseStart(start), .end = ring_.next_seq()};
}

// A challenge to a publisher that answers none is an unknown request.
bool ReplayResponder::CanAnswer(const ExtensionRequest& request) const {
  return request.verb != Verb::kChallenge || state_->answers_challenges();
}

Answer ReplayResponder::BeginExtended(const ExtensionRequest& request, uint64_t arrival) {
  Answer answer;
  answer.status_at_end = true;
  switch (request.verb) {
    case Verb::kStatus: {
      StateSnapshot status{.status = state_->Status(/*buckets=*/request.argument != 0),
                           .parts = {}};
      status.status.answers_challenges =
          state_->answers_challenges() && request.count == residency::kKnowsChallenges;
      answer.snapshot = std::make_shared<StateSnapshot>(std::move(status));
      break;
    }
    case Verb::kChallenge:
      answer.snapshot = std::make_shared<StateSnapshot>(state_->ChallengeAnswer(request.argument));
      break;
    case Verb::kSnapshot:
      answer.snapshot = Snapshot(residency::BucketsOf(request.argument), arrival);
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
