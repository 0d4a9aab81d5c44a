// NONE_HASH, the parent of every first block, comes from a seed text or from given bytes.
// SPDX-License-Identifier: Apache-2.0
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

// NONE_HASH is the hash of the serialised seed text. Without a seed, the text is "vllm-none-hash".
// Under xxhash an unset seed is random, so the caller must give the bytes. The test GoldenDigest
// checks the digests.
TEST(NoneHash, DependsOnSeedAndSerialisation) {
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    EXPECT_NE(MakeHasher(algorithm, "0").none_hash(), MakeHasher(algorithm, "1").none_hash());
  }
  EXPECT_NE(MakeHasher(HashAlgorithm::kSha256).none_hash(),
            MakeHasher(HashAlgorithm::kSha256Cbor).none_hash());
}

TEST(NoneHash, HasTheSizeOfADigestIfItComesFromASeed) {
  EXPECT_EQ(MakeHasher(HashAlgorithm::kSha256).none_hash().size, 32);
  EXPECT_EQ(MakeHasher(HashAlgorithm::kXxhash).none_hash().size, 16);
}

TEST(NoneHash, RawBytesAreTheParentOfTheFirstBlock) {
  for (const HashAlgorithm algorithm : kAllAlgorithms) {
    BlockHasher seeded = MakeHasher(algorithm, "42");
    const Digest none_hash = seeded.none_hash();
    Result<BlockHasher> raw = BlockHasher::FromNoneHash(algorithm, none_hash.bytes());
    ASSERT_TRUE(raw.ok());
    EXPECT_EQ(raw->none_hash(), none_hash);
    EXPECT_EQ(Chain(*raw, TokenRange(0, 64), 16), Chain(seeded, TokenRange(0, 64), 16));
  }
}

TEST(NoneHash, ARandomNoneHashHas32BytesUnderXxhashToo) {
  BlockHasher hasher = MakeHasherOfOnes(HashAlgorithm::kXxhash, 32);
  const std::string preimage = hasher.Preimage(nullptr, TokenRange(0, 1), {});
  EXPECT_EQ(ToHex(preimage).substr(22, 4), "4320");
  const std::vector<Digest> chain = Chain(hasher, TokenRange(0, 8), 4);
  EXPECT_EQ(chain[0].size, 16);
  EXPECT_EQ(chain[0], hasher.HashBlock(nullptr, TokenRange(0, 4), {}));
}

TEST(NoneHash, RawBytesOfAnImpossibleSizeAreRefused) {
  for (const size_t size : {size_t{0}, size_t{33}}) {
    const std::vector<uint8_t> bytes(size, 7);
    const Result<BlockHasher> hasher = BlockHasher::FromNoneHash(HashAlgorithm::kSha256, bytes);
    EXPECT_EQ(hasher.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kvcast::testing
