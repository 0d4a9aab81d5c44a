// A residency digest does not depend on the order of the blocks. The copies, tier, group and hash
// form of a block change the digest.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/residency/residency_digest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kvcast {
namespace {

BlockHash Unsigned(uint64_t value) { return BlockHash::FromUnsigned(value); }

TEST(ResidencyDigest, OrderDoesNotMatter) {
  ResidencyDigest forward;
  ResidencyDigest backward;
  for (uint64_t i = 0; i < 100; ++i) forward.Add(Tier::kGpu, 1, Unsigned(i));
  for (uint64_t i = 100; i-- > 0;) backward.Add(Tier::kGpu, 1, Unsigned(i));
  EXPECT_EQ(forward.Totals(), backward.Totals());
}

TEST(ResidencyDigest, AddAndRemoveCancelOut) {
  ResidencyDigest digest;
  digest.Add(Tier::kCpu, 3, Unsigned(7));
  digest.Remove(Tier::kCpu, 3, Unsigned(7));
  EXPECT_TRUE(digest.Totals().empty());
}

TEST(ResidencyDigest, CopiesChangeTheDigest) {
  ResidencyDigest once;
  ResidencyDigest twice;
  once.Add(Tier::kGpu, 0, Unsigned(1));
  twice.Add(Tier::kGpu, 0, Unsigned(1));
  twice.Add(Tier::kGpu, 0, Unsigned(1));
  EXPECT_NE(once.Totals(), twice.Totals());
  EXPECT_EQ(twice.Totals()[0].total.copies, 2u);
  ResidencyDigest together;
  together.Add(Tier::kGpu, 0, Unsigned(1), 2);
  EXPECT_EQ(together.Totals(), twice.Totals());
  const size_t bucket = DigestBucketOf(Unsigned(1));
  EXPECT_EQ((*together.Buckets(Tier::kGpu, 0))[bucket], (*twice.Buckets(Tier::kGpu, 0))[bucket]);
}

TEST(ResidencyDigest, TierGroupAndFormOfTheHashChangeTheDigest) {
  const uint8_t five[8] = {5};
  std::vector<ResidencyTotals> totals;
  const auto add = [&totals](Tier tier, uint8_t group, const BlockHash& hash) {
    ResidencyDigest digest;
    digest.Add(tier, group, hash);
    totals.push_back(digest.Totals());
  };
  add(Tier::kGpu, 0, Unsigned(5));
  add(Tier::kCpu, 0, Unsigned(5));
  add(Tier::kGpu, 1, Unsigned(5));
  add(Tier::kGpu, 0, BlockHash::FromBytes(five));
  add(Tier::kGpu, 0, BlockHash::FromBytes(std::vector<uint8_t>{5}));
  add(Tier::kGpu, 0, BlockHash::FromSigned(-5));
  for (size_t i = 0; i < totals.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(totals[i], totals[j]) << i << " and " << j;
  }
}

TEST(ResidencyDigest, BucketsAddUpToTheTotal) {
  ResidencyDigest digest;
  for (uint64_t i = 0; i < 1000; ++i) digest.Add(Tier::kGpu, 0, Unsigned(i));
  DigestSum sum;
  size_t used = 0;
  for (const DigestSum& bucket : *digest.Buckets(Tier::kGpu, 0)) {
    sum.Add(bucket);
    used += bucket.copies > 0;
  }
  EXPECT_EQ(sum, digest.Totals()[0].total);
  EXPECT_GT(used, kDigestBuckets / 2);
}

TEST(ResidencyDigest, AHashCountsInItsBucket) {
  ResidencyDigest digest;
  digest.Add(Tier::kGpu, 0, Unsigned(42));
  EXPECT_EQ((*digest.Buckets(Tier::kGpu, 0))[DigestBucketOf(Unsigned(42))],
            CopyDigestOf(Unsigned(42)));
}

TEST(ResidencyDigest, ClearEmptiesOneTier) {
  ResidencyDigest digest;
  digest.Add(Tier::kGpu, 0, Unsigned(1));
  digest.Add(Tier::kCpu, 0, Unsigned(1));
  digest.Clear(Tier::kGpu);
  ASSERT_EQ(digest.Totals().size(), 1u);
  EXPECT_EQ(digest.Totals()[0].tier, Tier::kCpu);
}

// The values are in schemas/README.md. Python's xxhash computed them.
TEST(ResidencyDigest, ValuesAreFixed) {
  const DigestSum sum = CopyDigestOf(Unsigned(1));
  EXPECT_EQ(sum.high, 0xbdc94bce2eda264du);
  EXPECT_EQ(sum.low, 0xbc08dc21994df8a2u);
}

}  // namespace
}  // namespace kvcast
