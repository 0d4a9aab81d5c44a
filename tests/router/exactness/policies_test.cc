// The rules of other routers give right answers for a model with only full attention. They give
// wrong answers for windows, states, block copies and groups of several block sizes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "apps/conformance/router/policy_index.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

using tools::Policy;

// Feeds the same events of one worker to all policies.
class Policies : public ::testing::Test {
 protected:
  void Register(std::vector<GroupSpec> groups, int64_t hash_block_size = 0) {
    for (const Policy policy : tools::kPolicies) {
      auto index = tools::MakePolicyIndex(policy, Registered(groups, hash_block_size));
      ASSERT_TRUE(index.ok()) << index.status().ToString();
      indexes_.push_back(std::move(index).value());
    }
  }
  void Apply(const EventBatch& batch) {
    for (const auto& index : indexes_) index->Apply(batch);
  }
  int64_t Match(Policy policy, int64_t tokens, int64_t hash_block_size = 16) {
    return indexes_[static_cast<size_t>(policy)]
        ->Match(Hashes(1, tokens / hash_block_size), hash_block_size, tokens)
        .tokens;
  }

  std::vector<std::unique_ptr<tools::PolicyIndex>> indexes_;
};

TEST_F(Policies, AgreeOnAFullAttentionModel) {
  Register({Full()});
  Apply(Batch(Store(Hashes(1, 6)), Remove(Hashes(5, 1))));
  for (const Policy policy : tools::kPolicies) {
    EXPECT_EQ(Match(policy, 100), 64) << tools::PolicyName(policy);
    EXPECT_EQ(Match(policy, 64), 48) << tools::PolicyName(policy);
  }
}

TEST_F(Policies, AnswerDifferentlyWhenTheWindowIsGone) {
  Register({Full(), Window(32)});
  Apply(Batch(Store(Hashes(1, 6), 0), Store(Hashes(1, 6), 1), Remove(Hashes(6, 1), 1),
              Remove(Hashes(3, 2), 1)));
  EXPECT_EQ(Match(Policy::kExact, 100), 32);
  EXPECT_EQ(Match(Policy::kFullOnly, 100), 96);
  EXPECT_EQ(Match(Policy::kAnyGroup, 100), 96);
  EXPECT_EQ(Match(Policy::kGroupBlind, 100), 32);
  EXPECT_EQ(Match(Policy::kMinOfMaxima, 100), 32);
}

TEST_F(Policies, GroupBlindLosesBlocksThatAnotherGroupStillHolds) {
  Register({Full(), Window(32)});
  Apply(Batch(Store(Hashes(1, 6), 0), Store(Hashes(1, 6), 1), Remove(Hashes(1, 2), 1)));
  EXPECT_EQ(Match(Policy::kExact, 100), 96);
  EXPECT_EQ(Match(Policy::kGroupBlind, 100), 0);
}

TEST_F(Policies, GroupBlindForgetsCopies) {
  Register({Full()});
  Apply(Batch(Store(Hashes(1, 6)), Store(Hashes(1, 6)), Remove(Hashes(1, 6))));
  EXPECT_EQ(Match(Policy::kExact, 100), 96);
  EXPECT_EQ(Match(Policy::kGroupBlind, 100), 0);
}

TEST_F(Policies, MinOfMaximaCountsAStateBehindTheFullAttentionBlocks) {
  Register({Full(), Mamba(16)});
  Apply(Batch(Store(Hashes(1, 3), 0), Store(Hashes(2, 1), 1), Store(Hashes(4, 1), 1)));
  EXPECT_EQ(Match(Policy::kExact, 100), 32);
  EXPECT_EQ(Match(Policy::kMinOfMaxima, 100), 48);
}

TEST_F(Policies, FullOnlyPredictsNothingWithoutFullAttention) {
  Register({Window(32)});
  Apply(Batch(Store(Hashes(1, 6))));
  EXPECT_EQ(Match(Policy::kExact, 100), 96);
  EXPECT_EQ(Match(Policy::kFullOnly, 100), 0);
}

TEST_F(Policies, AnyGroupCountsUnitsInsideLargerBlocks) {
  Register({Full(32), Window(24, 8)}, 8);
  // Hashes 4 and 8 end the full group's blocks. Only the window group has hash 9.
  Apply(Batch(StoreFull({Hashes(4, 1)[0], Hashes(8, 1)[0]}, 0, 32),
              StoreWindow(Hashes(9, 1), 1, 24, 8)));
  EXPECT_EQ(Match(Policy::kExact, 100, 8), 0);
  EXPECT_EQ(Match(Policy::kFullOnly, 100, 8), 64);
  EXPECT_EQ(Match(Policy::kAnyGroup, 100, 8), 72);
}

TEST_F(Policies, ClearEmptiesThemAll) {
  Register({Full()});
  Apply(Batch(Store(Hashes(1, 6)), AllBlocksCleared{}));
  for (const Policy policy : tools::kPolicies) {
    EXPECT_EQ(Match(policy, 100), 0) << tools::PolicyName(policy);
  }
}

TEST(PolicyNames, AreReadBack) {
  for (const Policy policy : tools::kPolicies) {
    EXPECT_EQ(tools::ParsePolicy(tools::PolicyName(policy)), policy);
  }
  EXPECT_EQ(tools::ParsePolicy("best"), std::nullopt);
}

}  // namespace
}  // namespace kvcast::testing
