// SPDX-License-Identifier: Apache-2.0
#include "router/replica/replica.h"

#include <algorithm>
#include <utility>

#include "src/residency/copies_of.h"

namespace kvcast::router {

ApplyResult Replica::Apply(uint64_t seq, const EventBatch& batch) {
  ApplyResult result = index_.Apply(worker_, batch);
  left_out_ |= !result.left_out.empty();
  Remember(seq + 1, std::move(result.digests));
  return result;
}

void Replica::Remember(uint64_t next_seq, ResidencyTotals totals) {
  remembered_[next_seq % kRemembered] = {true, next_seq, std::move(totals)};
  last_ = next_seq;
}

void Replica::Reset(bool restart) {
  restart ? index_.RestartWorker(worker_) : index_.ClearWorker(worker_);
  Forget();
}

bool Replica::Exceeds(int64_t gpu_blocks) const {
  const Remembered& now = remembered_[last_ % kRemembered];
  if (gpu_blocks <= 0 || !now.known) return false;
  return std::ranges::any_of(now.totals, [gpu_blocks](const GroupTierDigest& digest) {
    return digest.tier == Tier::kGpu && digest.total.copies > static_cast<uint64_t>(gpu_blocks);
  });
}

bool Replica::HasTooManyCopies(uint64_t residencies) const {
  constexpr uint64_t kFreeCopies = uint64_t{1} << 20;
  const ResidencyTotals& totals = remembered_[last_ % kRemembered].totals;
  return residency::CopiesOf(totals) > 2 * residencies + kFreeCopies;
}

DigestVerdict Replica::Compare(const residency::PublisherStatus& status) const {
  const Remembered& then = remembered_[status.next_seq % kRemembered];
  if (!status.has_digests || !then.known || then.next_seq != status.next_seq || left_out_) {
    return DigestVerdict::kUnknown;
  }
  return then.totals == status.Totals() ? DigestVerdict::kEqual : DigestVerdict::kDiffers;
}

uint64_t Replica::DifferingBuckets(const residency::PublisherStatus& status) const {
  return residency::ArgumentOf(router::DifferingBuckets(DigestOfContent(index_, worker_), status));
}

void Replica::BeginSnapshot() {
  repair_.reset();
  index_.BeginHidden(worker_);
  reader_.Restart();
}

void Replica::BeginRepair(uint64_t buckets) {
  DropSnapshot();
  repair_ = std::make_unique<BucketRepair>(residency::BucketsOf(buckets));
  reader_.Restart();
}

bool Replica::AddToSnapshot(std::span<const uint8_t> payload) {
  if (!reader_.Read(payload, part_).ok()) return false;
  if (repair_) return repair_->Add(part_);
  index_.ApplyHidden(worker_, part_);
  return true;
}

bool Replica::CommitSnapshot(const residency::PublisherStatus& status) {
  if (repair_) return CommitRepair(status);
  const ResidencyTotals declared = status.Totals();
  // Checks the received parts against the declared totals, and then the hidden index.
  if (!reader_.Finish(declared).ok() || index_.HiddenDigests(worker_) != declared) return false;
  index_.SwapHidden(worker_);
  index_.Reclaim();
  Forget();
  Remember(status.next_seq);
  return true;
}

bool Replica::CommitRepair(const residency::PublisherStatus& status) {
  const std::unique_ptr<BucketRepair> repair = std::move(repair_);
  const BucketMask& buckets = repair->buckets();
  // The buckets that differ from the status: `kept` in the current blocks of the worker, `added` in
  // the received blocks.
  const BucketMask kept = router::DifferingBuckets(DigestOfContent(index_, worker_), status);
  const BucketMask added = router::DifferingBuckets(reader_.digest(), status);
  if ((kept & ~buckets).any() || (added & buckets).any()) return false;
  index_.NoteRecord(worker_);
  index_.Apply(worker_, repair->TakeChanges(index_, worker_));
  Forget();
  Remember(status.next_seq);
  return index_.Digests(worker_) == status.Totals();
}

void Replica::DropSnapshot() {
  repair_.reset();
  index_.DropHidden(worker_);
  index_.Reclaim();
}

}  // namespace kvcast::router
