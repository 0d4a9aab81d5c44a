// SPDX-License-Identifier: Apache-2.0
#include "router/replica.h"

#include <algorithm>

namespace kvcast::router {

std::vector<size_t> Replica::Apply(uint64_t seq, const EventBatch& batch) {
  std::vector<size_t> left_out = index_.Apply(worker_, batch);
  Remember(seq + 1);
  return left_out;
}

void Replica::Remember(uint64_t next_seq) {
  remembered_[next_seq % kRemembered] = {true, next_seq, index_.Digests(worker_)};
  last_ = next_seq;
}

void Replica::Reset(bool restart) {
  restart ? index_.RestartWorker(worker_) : index_.ClearWorker(worker_);
  Forget();
}

bool Replica::Exceeds(int64_t gpu_blocks) const {
  const Remembered& now = remembered_[last_ % kRemembered];
  if (gpu_blocks <= 0 || !now.known) return false;
  return std::ranges::any_of(now.totals, [gpu_blocks](const PlaceDigest& place) {
    return place.tier == Tier::kGpu && place.total.copies > static_cast<uint64_t>(gpu_blocks);
  });
}

DigestVerdict Replica::Compare(const residency::PublisherStatus& status) const {
  const Remembered& then = remembered_[status.next_seq % kRemembered];
  if (!status.has_digests || !then.known || then.next_seq != status.next_seq) {
    return DigestVerdict::kUnknown;
  }
  return then.totals == status.Totals() ? DigestVerdict::kEqual : DigestVerdict::kDiffers;
}

void Replica::BeginSnapshot() {
  index_.BeginHidden(worker_);
  reader_.Restart();
}

bool Replica::AddToSnapshot(std::span<const uint8_t> payload) {
  if (!reader_.Read(payload, part_).ok()) return false;
  index_.ApplyHidden(worker_, part_);
  return true;
}

bool Replica::CommitSnapshot(const residency::PublisherStatus& status) {
  const ResidencyTotals declared = status.Totals();
  // What came is all that was sent, and what the index made of it is all that came.
  if (!reader_.Finish(declared).ok() || index_.HiddenDigests(worker_) != declared) return false;
  index_.SwapHidden(worker_);
  index_.Reclaim();
  Forget();
  Remember(status.next_seq);
  return true;
}

void Replica::DropSnapshot() {
  index_.DropHidden(worker_);
  index_.Reclaim();
}

}  // namespace kvcast::router
