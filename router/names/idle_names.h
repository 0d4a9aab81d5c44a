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
#include "src/base/byte_fields.h"

namespace kvcast::router {

// A content that a source gave a hash.
struct GivenContent {
  ContentKey content = kUnnamed;
  bool proven = true;  // see StoreContent::proven
};

// The names of one source. Thread-compatible. Takes 32 KiB, allocated with the first name.
class IdleNames {
 public:
  static constexpr size_t kCapacity = 2048;

  // `hash`: a value that is well mixed in all bits, and equal only for equal block hashes.
  void Put(uint64_t hash, const GivenContent& name) {
    hash |= kProven;
    if (!buckets_) buckets_ = std::make_unique<std::array<Bucket, kBuckets>>();
    Bucket& bucket = BucketOf(hash);
    size_t way = 0;
    while (way < kWays - 1 && !bucket[way].Has(hash) && bucket[way].content != kUnnamed) ++way;
    if (bucket[way].content != kUnnamed && !bucket[way].Has(hash)) ++forgotten_;
    for (; way > 0; --way) bucket[way] = bucket[way - 1];
    bucket[0] = {name.proven ? hash : hash ^ kProven, name.content};
  }
  // Returns the content of the hash. GivenContent::content is kUnnamed if it is not known.
  GivenContent Find(uint64_t hash) const {
    if (!buckets_) return {};
    for (const Entry& entry : BucketOf(hash)) {
      if (entry.Has(hash)) return {entry.content, (entry.hash & kProven) != 0};
    }
    return {};
  }
  void Prefetch(uint64_t hash) const {
    if (buckets_) __builtin_prefetch(&BucketOf(hash));
  }
  // The names, with the oldest name of each bucket first. Restore adds them in this order.
  void Save(FieldWriter& to) const;
  void Restore(FieldReader& from);
  void Clear() { buckets_.reset(); }
  uint64_t forgotten() const { return forgotten_; }

 private:
  static constexpr uint64_t kProven = 1;

  struct Entry {
    // The hash, except for its lowest bit. The lowest bit is kProven if the content is proven, and
    // 0 otherwise.
    uint64_t hash = 0;
    ContentKey content = kUnnamed;

    bool Has(uint64_t of) const { return (hash | kProven) == (of | kProven); }
  };
  static constexpr size_t kWays = 4;
  static constexpr size_t kBuckets = kCapacity / kWays;
  struct alignas(64) Bucket : std::array<Entry, kWays> {};

  Bucket& BucketOf(uint64_t hash) const { return (*buckets_)[hash >> 32 & (kBuckets - 1)]; }

  std::unique_ptr<std::array<Bucket, kBuckets>> buckets_;
  uint64_t forgotten_ = 0;
};

inline void IdleNames::Save(FieldWriter& to) const {
  size_t names = 0;
  for (size_t i = 0; buckets_ && i < kCapacity; ++i) {
    names += (*buckets_)[i / kWays][i % kWays].content != kUnnamed;
  }
  to.Int(names);
  for (size_t i = 0; buckets_ && i < kCapacity; ++i) {
    const Entry& entry = (*buckets_)[i / kWays][kWays - 1 - i % kWays];
    if (entry.content == kUnnamed) continue;
    to.Fixed(entry.hash);
    to.Fixed(entry.content);
  }
}

inline void IdleNames::Restore(FieldReader& from) {
  for (size_t names = from.Int(kCapacity); names > 0 && from.ok(); --names) {
    const uint64_t hash = from.Fixed();
    const ContentKey content = from.Fixed();
    if (content != kUnnamed) Put(hash, {content, (hash & kProven) != 0});
  }
}

}  // namespace kvcast::router
