// Bucket repair: the few changes that bring what a worker holds in some buckets of its digests to
// what its publisher has there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "kvcast/core/event.h"
#include "kvcast/router/prefix_index.h"
#include "src/residency/extension.h"

namespace kvcast::router {

using residency::BucketMask;

// The digest of what the index holds, computed anew. One pass over the index.
ResidencyDigest DigestOfContent(const PrefixIndex& index, WorkerId worker);
// The buckets that are not, in every place, those of the status. Buckets that the status does not
// have count as empty.
BucketMask DifferingBuckets(const ResidencyDigest& held, const PublisherStatus& status);

// What a publisher has in some buckets, collected from the parts of its answer. Thread-compatible.
class BucketRepair {
 public:
  explicit BucketRepair(const BucketMask& buckets);
  ~BucketRepair();

  const BucketMask& buckets() const { return buckets_; }
  // Takes the stores of a part. False: one of them is of another bucket.
  bool Add(const EventBatch& part);
  // Removes of copies that the worker holds too many in the buckets, and stores of those that it
  // lacks. One pass over the index; what was added is used up.
  EventBatch TakeChanges(const PrefixIndex& index, WorkerId worker);

 private:
  struct Wanted;

  const BucketMask buckets_;
  std::unique_ptr<Wanted> wanted_;
};

}  // namespace kvcast::router
