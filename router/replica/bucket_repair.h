// Bucket repair: computes the events that make the blocks of one worker equal to the blocks of its
// publisher. The repair is limited to some buckets of the digests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "src/residency/extension.h"

namespace kvcast::router {

using residency::BucketMask;

// Computes the digest of the worker's blocks in the index. Reads the whole index once.
ResidencyDigest DigestOfContent(const PrefixIndex& index, WorkerId worker);
// Returns each bucket that differs between `held` and `status` in at least one tier and group.
// Buckets that the status does not have count as empty.
BucketMask DifferingBuckets(const ResidencyDigest& held, const PublisherStatus& status);

// The publisher's blocks in some buckets, collected from the parts of the publisher's snapshot.
// Thread-compatible.
class BucketRepair {
 public:
  explicit BucketRepair(const BucketMask& buckets);
  ~BucketRepair();

  const BucketMask& buckets() const { return buckets_; }
  // Adds the stores of a part. False: a stored block is in a bucket outside buckets().
  bool Add(const EventBatch& part);
  // Returns remove events for the worker's surplus copies in the buckets, and store events for its
  // missing copies. Reads the whole index once. Clears the collected parts.
  EventBatch TakeChanges(const PrefixIndex& index, WorkerId worker);

 private:
  struct Wanted;

  const BucketMask buckets_;
  std::unique_ptr<Wanted> wanted_;
};

}  // namespace kvcast::router
