// Shard sizes: the possible sizes of a shard of the locator table, and the pieces of a shard.
//
// A shard consists of pieces. A piece is an array of kPieceBuckets buckets. Pieces of all shards
// have one size, so any shard can use the freed pieces of another shard. Only a shard that is
// smaller than a piece has a smaller piece.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvcast::router {

inline constexpr uint32_t kPieceBits = 7;
inline constexpr uint32_t kPieceBuckets = 1u << kPieceBits;
inline constexpr uint32_t kMaxShardBuckets = 1u << 28;

// Sizes in buckets. Size 0 means that there is no shard. From about 8 pieces on, each size is about
// an eighth larger than the size before.
constexpr std::array<uint32_t, 150> MakeShardSizes() {
  std::array<uint32_t, 150> sizes{};
  uint32_t size = 1;
  for (size_t i = 1; i < sizes.size() && size <= kMaxShardBuckets; ++i) {
    sizes[i] = size;
    const uint32_t pieces = size / kPieceBuckets;
    size += pieces == 0 ? std::max<uint32_t>(1, std::bit_floor(size) / 4)
                        : std::max<uint32_t>(1, (pieces + 4) / 8) * kPieceBuckets;
  }
  return sizes;
}
inline constexpr std::array<uint32_t, 150> kShardSizes = MakeShardSizes();

constexpr uint32_t PiecesOf(uint32_t buckets) {
  return (buckets + kPieceBuckets - 1) / kPieceBuckets;
}

}  // namespace kvcast::router
