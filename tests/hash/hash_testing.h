// Shared functions of the hash tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::testing {

inline std::string ToHex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

inline std::string ToHex(const Digest& digest) {
  return ToHex({reinterpret_cast<const char*>(digest.data.data()), digest.size});
}

// Returns `count` tokens, starting at `first`.
inline std::vector<TokenId> TokenRange(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline BlockHasher MakeHasher(HashAlgorithm algorithm, std::string_view seed = kDefaultHashSeed) {
  Result<BlockHasher> hasher = BlockHasher::FromSeed(algorithm, seed);
  EXPECT_TRUE(hasher.ok()) << hasher.status().ToString();
  return std::move(hasher).value();
}

// A hasher whose NONE_HASH is `size` bytes of 0x01, for tests that contain whole preimages.
inline BlockHasher MakeHasherOfOnes(HashAlgorithm algorithm, size_t size) {
  const std::vector<uint8_t> none_hash(size, 1);
  Result<BlockHasher> hasher = BlockHasher::FromNoneHash(algorithm, none_hash);
  EXPECT_TRUE(hasher.ok()) << hasher.status().ToString();
  return std::move(hasher).value();
}

inline std::vector<Digest> Chain(BlockHasher& hasher, std::span<const TokenId> tokens,
                                 int64_t hash_block_size, const HashInputs& inputs = {}) {
  std::vector<Digest> chain;
  hasher.ExtendChain(tokens, hash_block_size, inputs, chain);
  return chain;
}

inline constexpr HashAlgorithm kAllAlgorithms[] = {
    HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor, HashAlgorithm::kXxhash,
    HashAlgorithm::kXxhashCbor};

}  // namespace kvcast::testing
