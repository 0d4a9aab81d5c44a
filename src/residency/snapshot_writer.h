// SnapshotWriter: writes the batches that bring an empty index to the state of a mirror.
//
// A chain of blocks with the same tier, group, size and number of copies is one store event, which
// is sent once per copy. If the group holds a parent on this tier, the parent comes before its
// children. The stores carry no tokens. If buckets are left out, parents are left out too. A store
// then names blocks with the same tier, group, size and number of copies, and these blocks need not
// be a chain.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/residency/residency_digest.h"
#include "kvcast/wire/wire.h"
#include "src/residency/mirror.h"

namespace kvcast::residency {

using Payload = std::shared_ptr<const std::vector<uint8_t>>;

// Maximum number of hashes in one batch, copies included. The frames of any snapshot stay small.
inline constexpr size_t kSnapshotBatchHashes = 4096;

struct SnapshotOptions {
  BucketMask buckets = BucketMask().set();  // blocks of other buckets are left out
  Dialect dialect = kDefaultDialect;
  int64_t data_parallel_rank = 0;
  double ts = 0;  // time of the batches, seconds since the Unix epoch
};

// Writes a snapshot in steps, so that the caller can do other work between two steps.
// Thread-compatible.
class SnapshotWriter {
 public:
  // `copy`: the blocks of the buckets of `options`.
  SnapshotWriter(MirrorCopy copy, const SnapshotOptions& options);
  ~SnapshotWriter();
  // Appends the batches that this step finished to `out`, one payload per batch. False: all batches
  // are written. A step reads, sorts or writes some thousand blocks, which takes milliseconds. A
  // step takes longer if many hashes begin with the same bytes, or if a chain has more blocks.
  bool Step(std::vector<Payload>& out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes the whole snapshot.
std::vector<Payload> WriteSnapshot(const Mirror& mirror, const SnapshotOptions& options);

}  // namespace kvcast::residency
