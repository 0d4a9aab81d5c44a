// Bucket repair: computes the changes that make a worker's blocks, in some buckets of its digests,
// equal to the blocks of its publisher.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "src/residency/extension.h"

namespace kvcast::router {

using residency::BucketMask;

// Computes the digest from the blocks in the index. One pass over the index.
ResidencyDigest DigestOfContent(const PrefixIndex& index, WorkerId worker);
// Returns the buckets that differ from those of the status in any place. Buckets that the status
// does not have count as empty.
BucketMask DifferingBuckets(const ResidencyDigest& held, const PublisherStatus& status);

// The publisher's blocks in some buckets, collected from the parts of its answer.
// Thread-compatible.
class BucketRepair {
 public:
  explicit BucketRepair(const BucketMask& buckets);
  ~BucketRepair();

  const BucketMask& buckets() const { return buckets_; }
  // Adds the stores of a part. False: one of them is of another bucket.
  bool Add(const EventBatch& part);
  // Returns removes of the copies in the buckets that the worker has too many, and stores of the
  // missing copies. One pass over the index. Clears the collected parts.
  EventBatch TakeChanges(const PrefixIndex& index, WorkerId worker);

 private:
  struct Wanted;

  const BucketMask buckets_;
  std::unique_ptr<Wanted> wanted_;
};

}  // namespace kvcast::router
