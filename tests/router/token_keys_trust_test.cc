// Token mode: a hash names one content, a content has one hash. What breaks that is not promised.
// SPDX-License-Identifier: Apache-2.0
#include "tests/router/token_events.h"

namespace kvcast::testing {
namespace {

TEST(TokenKeysTrust, AHashThatComesToNameAnotherContentIsTakenBack) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(90, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.Reusable(Tokens(90, 4)), 0);
  EXPECT_EQ(worker.counters().conflicts, 2u) << "the hash, and the one learned from it";
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
}

TEST(TokenKeysTrust, ADistrustedHashStaysSo) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(1)}, Tokens(90, 4)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)));
  worker.Apply(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(1)), Unresolved::kConflict);
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(2)), Unresolved::kConflict);
  worker.Apply(Remove({Hash(1), Hash(1), Hash(1)}));
  EXPECT_EQ(worker.counters().unknown_removes, 0u) << "its copies are counted all the same";
}

TEST(TokenKeysTrust, OneHashTwiceInAStoreIsAConflict) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1), Hash(1)}, Tokens(1, 8)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
}

// An old engine that does not send the salts: two tenants, the same tokens.
TEST(TokenKeysTrust, AContentOfTwoHashesIsTakenBack) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)));
  worker.Apply(StoreTokens({Hash(11)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
  worker.Apply(StoreTokens({Hash(21), Hash(22)}, Tokens(1, 8)));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(22)), Unresolved::kConflict) << "a third one";
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
}

TEST(TokenKeysTrust, OthersAreNotAffected) {
  TokenModeWorker worker;
  worker.Apply(StoreTokens({Hash(5), Hash(6)}, Tokens(50, 8)));
  worker.Apply(StoreTokens({Hash(1)}, Tokens(1, 4)), StoreTokens({Hash(11)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(50, 8)), 8);
}

// Engines before 2026-06 give a prefix another byte string for each block size.
TEST(TokenKeysTrust, AnotherHashForAnotherBlockSizeIsNoConflict) {
  TokenModeWorker worker({}, {Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(21)}, Tokens(1, 8), std::nullopt, 0, 8));
  worker.Apply(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8), std::nullopt, 1, 4));
  EXPECT_EQ(worker.counters().conflicts, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
}

TEST(TokenKeysTrust, WhatWasLearnedBehindAForgottenBlockGoesToo) {
  TokenModeWorker worker({.hashes_max = 3});
  worker.Apply(StoreTokens({Hash(1), Hash(2), Hash(3)}, Tokens(1, 12)), Remove({Hash(2)}));
  worker.Apply(StoreTokens({Hash(6)}, Tokens(60, 4)));
  ASSERT_EQ(worker.counters().forgotten_hashes, 1u) << "hash 2";
  worker.Apply(StoreTokens({Hash(1)}, Tokens(90, 4)));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(3)), Unresolved::kConflict);
  EXPECT_EQ(worker.Reusable(Tokens(60, 4)), 4);
}

// Hash 40 is known from within block 4, which is then read again from hash 40 on.
TEST(TokenKeysTrust, WhatIsLearnedBothWaysStillRestsOnItsOrigin) {
  TokenModeWorker worker({}, {Full(8), Full(4)});
  worker.Apply(StoreTokens({Hash(1), Hash(2), Hash(3), Hash(4)}, Tokens(1, 16), std::nullopt, 1));
  worker.Apply(StoreTokens({Hash(4)}, Tokens(9, 8), Hash(40), 0, 8));
  worker.Apply(StoreTokens({Hash(20)}, Tokens(90, 4), std::nullopt, 1));
  worker.Apply(StoreTokens({Hash(21)}, Tokens(90, 4), std::nullopt, 1));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(4)), std::nullopt);
  worker.Apply(StoreTokens({Hash(1)}, Tokens(90, 4), std::nullopt, 1));
  EXPECT_EQ(worker.keys().WhyUnresolved(Hash(4)), Unresolved::kConflict);
  EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
}

}  // namespace
}  // namespace kvcast::testing
