// The hasher gives the digests that were published for the engine's seed texts. Block 0 has the
// tokens 0..15, and block 1 has the tokens 16..31.
// SPDX-License-Identifier: Apache-2.0
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

struct Golden {
  HashAlgorithm algorithm;
  std::string_view seed;
  std::string_view none_hash;
  std::string_view block0;
  std::string_view block1;  // empty: not published
};

constexpr Golden kPlain[] = {
    {HashAlgorithm::kSha256, kDefaultHashSeed,
     "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
     "fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798",
     "8be7aaa33831156d316f1f463ae57e643deb63f42e633e2d631df88815cc4629"},
    {HashAlgorithm::kSha256, "0",
     "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c",
     "6358e31578a64b75ebe28cdb99d3beae65de82a2087321dc6ec84ae048faaaa6", ""},
    {HashAlgorithm::kSha256Cbor, kDefaultHashSeed,
     "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
     "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749",
     "c300ec275d7bf08af8fc63e76cdc0086911bbc7091e03c5cf892553bef84ef0c"},
    {HashAlgorithm::kSha256Cbor, "0",
     "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
     "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c", ""},
};

TEST(GoldenDigest, PlainBlocks) {
  for (const Golden& golden : kPlain) {
    SCOPED_TRACE(std::string(HashAlgorithmName(golden.algorithm)) + " seed " +
                 std::string(golden.seed));
    BlockHasher hasher = MakeHasher(golden.algorithm, golden.seed);
    EXPECT_EQ(ToHex(hasher.none_hash()), golden.none_hash);
    const std::vector<Digest> chain = Chain(hasher, TokenRange(0, 32), 16);
    ASSERT_EQ(chain.size(), 2u);
    EXPECT_EQ(ToHex(chain[0]), golden.block0);
    if (!golden.block1.empty()) {
      EXPECT_EQ(ToHex(chain[1]), golden.block1);
    }
  }
}

TEST(GoldenDigest, LastEightBytesAreTheEventInteger) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  const std::vector<Digest> chain = Chain(hasher, TokenRange(0, 32), 16);
  EXPECT_EQ(hasher.none_hash().low64(), 1178507917319934360u);
  EXPECT_EQ(chain[0].low64(), 3262291359910021016u);
  EXPECT_EQ(chain[1].low64(), 7142137847444424233u);
}

TEST(GoldenDigest, BlocksWithExtraKeys) {
  const std::vector<TokenId> tokens = TokenRange(0, 16);
  BlockHasher pickle = MakeHasher(HashAlgorithm::kSha256);
  EXPECT_EQ(ToHex(pickle.HashBlock(nullptr, tokens, {ExtraKey::Text("salt")})),
            "6cb493e72f0512827a5b2382a86d950fe713d54febd18092b8c02418c50fcd40");
  EXPECT_EQ(
      ToHex(pickle.HashBlock(nullptr, tokens, {ExtraKey::Text("my-lora"), ExtraKey::Text("salt")})),
      "b2d6b0b1736a5f6c9dffadb7376f0700e68f3caab85be5ef8e9308e94bd6fc22");
  EXPECT_EQ(ToHex(pickle.HashBlock(nullptr, tokens, {ExtraKey::Item("mmhash", -3)})),
            "5201cd6f1e380be6ba7fd2effd77e7fe5fdd7b8e8c5be9e99b520680d5497ed4");
  BlockHasher cbor = MakeHasher(HashAlgorithm::kSha256Cbor);
  EXPECT_EQ(ToHex(cbor.HashBlock(nullptr, tokens, {ExtraKey::Text("salt")})),
            "7c4f338bf4132118ae598f1bcb5c93be071e54994a593edd91b7feb744ba6ef8");
}

TEST(GoldenDigest, SaltAndLoraOfAPromptEnterTheChain) {
  BlockHasher hasher = MakeHasher(HashAlgorithm::kSha256);
  HashInputs inputs;
  inputs.cache_salt = "salt";
  EXPECT_EQ(ToHex(Chain(hasher, TokenRange(0, 16), 16, inputs)[0]),
            "6cb493e72f0512827a5b2382a86d950fe713d54febd18092b8c02418c50fcd40");
  inputs.lora_name = "my-lora";
  EXPECT_EQ(ToHex(Chain(hasher, TokenRange(0, 16), 16, inputs)[0]),
            "b2d6b0b1736a5f6c9dffadb7376f0700e68f3caab85be5ef8e9308e94bd6fc22");
}

}  // namespace
}  // namespace kvcast::testing
