// Snapshot writer: the batches that bring an empty index to the state of a mirror.
//
// Run-length coded: a chain of blocks of one place, size and number of copies is one store, sent
// as often as there are copies. A parent comes before its children where the place holds it. The
// stores carry no tokens. If buckets are left out parents are too: a store then names blocks of one
// place, size and number of copies that need not be a chain.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/residency/residency_digest.h"
#include "kvcast/wire/wire.h"
#include "src/residency/mirror.h"

namespace kvcast::residency {

using BucketMask = std::bitset<kDigestBuckets>;
using Payload = std::shared_ptr<const std::vector<uint8_t>>;

// Hashes of one batch, copies included; a snapshot of any size goes through small frames.
inline constexpr size_t kSnapshotBatchHashes = 4096;

struct SnapshotOptions {
  BucketMask buckets = BucketMask().set();  // blocks of other buckets are left out
  Dialect dialect = kDefaultDialect;
  int64_t data_parallel_rank = 0;
  double ts = 0;
};

// One payload a batch. O(blocks held), all of them even if most buckets are left out.
std::vector<Payload> WriteSnapshot(const Mirror& mirror, const SnapshotOptions& options);

}  // namespace kvcast::residency
