// IdleNames: the contents of hashes that a source has removed.
//
// A host tier announces a block without its tokens, often after the GPU has evicted the block. A
// block may also be stored behind a block that was evicted immediately before. The names of the
// last evicted blocks are therefore kept, in a table of fixed size. A bucket is a cache line. If
// the bucket of a new name is full, the name replaces the oldest name of the bucket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kvcast/router/content_key.h"

namespace kvcast::router {

// The names of one source. Thread-compatible. Takes 32 KiB, allocated with the first name.
class IdleNames {
 public:
  static constexpr size_t kCapacity = 2048;

  // `hash`: a value that is well mixed in all bits, and equal only for equal block hashes.
  void Put(uint64_t hash, ContentKey content) {
    if (!buckets_) buckets_ = std::make_unique<std::array<Bucket, kBuckets>>();
    Bucket& bucket = BucketOf(hash);
    size_t at = 0;
    while (at < kWays - 1 && bucket[at].hash != hash && bucket[at].content != kUnnamed) ++at;
    if (bucket[at].content != kUnnamed && bucket[at].hash != hash) ++forgotten_;
    for (; at > 0; --at) bucket[at] = bucket[at - 1];
    bucket[0] = {hash, content};
  }
  // kUnnamed: unknown.
  ContentKey Find(uint64_t hash) const {
    if (!buckets_) return kUnnamed;
    for (const Entry& entry : BucketOf(hash)) {
      if (entry.hash == hash) return entry.content;
    }
    return kUnnamed;
  }
  void Prefetch(uint64_t hash) const {
    if (buckets_) __builtin_prefetch(&BucketOf(hash));
  }
  void Clear() { buckets_.reset(); }
  uint64_t forgotten() const { return forgotten_; }

 private:
  struct Entry {
    uint64_t hash = 0;
    ContentKey content = kUnnamed;
  };
  static constexpr size_t kWays = 4;
  static constexpr size_t kBuckets = kCapacity / kWays;
  struct alignas(64) Bucket : std::array<Entry, kWays> {};

  Bucket& BucketOf(uint64_t hash) const { return (*buckets_)[hash >> 32 & (kBuckets - 1)]; }

  std::unique_ptr<std::array<Bucket, kBuckets>> buckets_;
  uint64_t forgotten_ = 0;
};

}  // namespace kvcast::router
