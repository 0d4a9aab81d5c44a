// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/publisher_state.h"

#include <algorithm>
#include <utility>

#include "src/residency/copies_of.h"
#include "src/residency/snapshot_reader.h"

namespace kvcast::stream {
namespace {

// Number of batches that one call of ReplayRing::ReadOn reads.
constexpr size_t kReadBatches = 256;

}  // namespace

bool StateSnapshot::Write() {
  if (writer && !writer->Step(parts)) writer.reset();
  return writer != nullptr;
}

PublisherState::PublisherState(const residency::Epoch& epoch, ReplayRing& ring, Dialect dialect,
                               int64_t data_parallel_rank, AnswerChallenge answer_challenge,
                               bool repeats_are_refreshes, uint64_t max_blocks)
    : epoch_(epoch),
      ring_(ring),
      dialect_(dialect),
      data_parallel_rank_(data_parallel_rank),
      answer_challenge_(std::move(answer_challenge)),
      max_blocks_(max_blocks),
      mirror_(repeats_are_refreshes) {
  ring_.KeepForReader();
}

kvcast::Status PublisherState::Restore(const PublishedState& state) {
  MutexLock lock(mutex_);
  next_ = state.status.next_seq;
  lost_ = !state.status.has_digests;
  if (lost_) return {};
  // The copies are counted only at the end, because all copies of one block may come before the
  // other blocks. Copies need no memory.
  residency::SnapshotReader reader({.max_copies = UINT64_MAX});
  for (const PublishedPayload& part : state.parts) {
    if (kvcast::Status read = reader.Read(*part, batch_); !read.ok()) return read;
    ts_ = batch_.ts;
    mirror_.Apply(batch_);
    if (mirror_.blocks() > max_blocks_) {
      DropTooLarge();
      return {};
    }
  }
  if (IsTooLarge()) DropTooLarge();
  return reader.Finish(state.status.Totals());
}

bool PublisherState::IsTooLarge() const {
  const uint64_t blocks = mirror_.blocks();
  const uint64_t copies = residency::CopiesOf(mirror_.digest().Totals());
  return blocks > max_blocks_ || copies > std::max(max_blocks_, 2 * blocks);
}

void PublisherState::DropTooLarge() {
  lost_ = too_large_ = true;
  mirror_.Clear();
}

bool PublisherState::too_large() {
  MutexLock lock(mutex_);
  return too_large_;
}

void PublisherState::CatchUp() {
  MutexLock lock(mutex_);
  CatchUpLocked();
}

void PublisherState::CatchUpLocked() {
  const uint64_t end = ring_.next_seq();
  while (next_ < end) {
    slice_.clear();
    ring_.ReadOn(kReadBatches, slice_);
    if (slice_.empty()) {
      lost_ = true;
      next_ = end;
    }
    for (const RingEntry& entry : slice_) {
      if (entry.seq != next_) lost_ = true;
      next_ = entry.seq + 1;
      DecodeCounts counts;
      if (!DecodeBatch(*entry.payload, WireLimits(), batch_, counts).ok()) lost_ = true;
      if (counts.rejected_total() > 0) lost_ = true;
      if (lost_) continue;
      ts_ = batch_.ts;
      mirror_.Apply(batch_);
      if (IsTooLarge()) DropTooLarge();
    }
    if (lost_) mirror_.Clear();
  }
}

residency::PublisherStatus PublisherState::StatusLocked(bool buckets) const {
  residency::PublisherStatus status;
  status.epoch = epoch_;
  status.next_seq = next_;
  status.first_held = std::min(ring_.first_held(), next_);
  status.has_digests = !lost_;
  if (lost_) return status;
  for (const GroupTierDigest& digest : mirror_.digest().Totals()) {
    status.groups.push_back({digest, std::nullopt});
    if (buckets) {
      status.groups.back().buckets = *mirror_.digest().Buckets(digest.tier, digest.group);
    }
  }
  return status;
}

residency::PublisherStatus PublisherState::Status(bool buckets) {
  MutexLock lock(mutex_);
  CatchUpLocked();
  return StatusLocked(buckets);
}

StateSnapshot PublisherState::Snapshot(const residency::BucketMask& buckets) {
  MutexLock lock(mutex_);
  CatchUpLocked();
  StateSnapshot snapshot{.status = StatusLocked(/*buckets=*/!buckets.all()), .parts = {}};
  if (lost_) return snapshot;
  residency::SnapshotOptions options;
  options.buckets = buckets;
  options.dialect = dialect_;
  options.data_parallel_rank = data_parallel_rank_;
  options.ts = ts_;
  snapshot.writer = std::make_unique<residency::SnapshotWriter>(mirror_.Copy(buckets), options);
  return snapshot;
}

StateSnapshot PublisherState::ChallengeAnswer(uint64_t nonce) {
  EventBatch batch = answer_challenge_(nonce);
  batch.data_parallel_rank = data_parallel_rank_;
  StateSnapshot answer{.status = Status(/*buckets=*/false), .parts = {}};
  if (batch.events.empty()) return answer;
  std::vector<uint8_t> payload;
  if (!EncodeBatch(batch, dialect_, payload).ok()) return answer;
  answer.parts.push_back(std::make_shared<const std::vector<uint8_t>>(std::move(payload)));
  return answer;
}

}  // namespace kvcast::stream
