// Digests have the right form in events, and algorithms have names.
// SPDX-License-Identifier: Apache-2.0
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

TEST(EventHash, IntegerFormIsTheLastEightBytesBigEndian) {
  Digest digest;
  digest.size = 16;
  for (uint8_t i = 0; i < 16; ++i) digest.data[i] = i;
  EXPECT_EQ(digest.low64(), 0x08090a0b0c0d0e0fu);
  EXPECT_EQ(ToEventHash(digest, EventHashForm::kInt64),
            BlockHash::FromUnsigned(0x08090a0b0c0d0e0fu));
}

TEST(EventHash, IntegerFormIsUnsigned) {
  Digest digest;
  digest.size = 32;
  digest.data.fill(0xff);
  const BlockHash hash = ToEventHash(digest, EventHashForm::kInt64);
  EXPECT_EQ(hash.form(), BlockHash::Form::kUnsigned);
  EXPECT_EQ(hash.integer(), UINT64_MAX);
}

TEST(EventHash, BytesFormIsTheWholeDigest) {
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    const Digest digest = MakeHasher(algorithm).none_hash();
    const BlockHash hash = ToEventHash(digest, EventHashForm::kBytes);
    EXPECT_EQ(hash, BlockHash::FromBytes(digest.bytes()));
    EXPECT_EQ(hash.bytes().size(), digest.size);
  }
}

// The hash unit has 2 tokens, and a block has 6 tokens. The hash of block 0 is fine[2]. The hash of
// the first 10 tokens is fine[4].
TEST(EventHash, FineHashesOfSizeTwoToTargetSix) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  const std::vector<Digest> fine = Chain(hasher, TokenRange(0, 18), 2);
  EXPECT_EQ(BlockDigest(fine, 0, 3), fine[2]);
  EXPECT_EQ(BlockDigest(fine, 2, 3), fine[8]);
  // The fine hash that ends at 10 tokens names the partial entry of 10 tokens.
  EXPECT_EQ(BlockDigest(fine, 10 / 2 - 1, 1), fine[4]);
}

TEST(EventHash, AlgorithmNamesAreThoseOfTheEngineOption) {
  EXPECT_EQ(HashAlgorithmName(HashAlgorithm::kSha256), "sha256");
  EXPECT_EQ(HashAlgorithmName(HashAlgorithm::kSha256Cbor), "sha256_cbor");
  EXPECT_EQ(HashAlgorithmName(HashAlgorithm::kXxhash), "xxhash");
  EXPECT_EQ(HashAlgorithmName(HashAlgorithm::kXxhashCbor), "xxhash_cbor");
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    EXPECT_EQ(ParseHashAlgorithm(HashAlgorithmName(algorithm)), algorithm);
  }
  EXPECT_EQ(ParseHashAlgorithm("builtin"), std::nullopt);
  EXPECT_EQ(ParseHashAlgorithm(""), std::nullopt);
}

}  // namespace
}  // namespace kvcast::testing
