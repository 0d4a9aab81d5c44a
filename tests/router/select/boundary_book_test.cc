// BoundaryBook learns how often a common prefix of two conversations is the prefix of a third
// conversation.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/boundary_book.h"

#include <gtest/gtest.h>

#include "tests/support/flood.h"

namespace kvcast {
namespace {

void See(BoundaryBook& book, PrefixName name, int times) {
  for (int i = 0; i < times; ++i) book.Seen(name);
}

TEST(BoundaryBook, WithoutDataTheChanceIsOneHalf) {
  const BoundaryBook book;
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(1), 0.5);
}

TEST(BoundaryBook, LearnsTheChanceFromOtherBoundaries) {
  // The book sees 20 boundaries once. Then it sees 5 of these boundaries five more times.
  BoundaryBook book;
  for (PrefixName name = 1; name <= 20; ++name) See(book, name, 1);
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(99), 0.5 / 21) << "no boundary came twice";
  for (PrefixName name = 1; name <= 5; ++name) See(book, name, 5);
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(99), 5.5 / 21)
      << "after the first prompt with this boundary";
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(20), 5.5 / 6)
      << "after the second prompt with this boundary";
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(1), 0.5 / 6) << "no boundary came more than six times";
}

TEST(BoundaryBook, APopularBoundaryIsExpectedAgain) {
  BoundaryBook book;
  for (PrefixName name = 1; name <= 20; ++name) See(book, name, 1);
  See(book, 50, 1000);
  EXPECT_GT(book.ChanceOfAnother(50), 0.5);
  EXPECT_LT(book.ChanceOfAnother(99), 0.1);
}

TEST(BoundaryBook, DropsTheBoundariesThatItLearnedFirst) {
  BoundaryBook book(2);
  See(book, 1, 2);
  See(book, 2, 2);
  EXPECT_NE(book.ChanceOfAnother(1), book.ChanceOfAnother(99));
  See(book, 3, 1);
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(1), book.ChanceOfAnother(99)) << "dropped";
  EXPECT_NE(book.ChanceOfAnother(2), book.ChanceOfAnother(99));
}

// In a query by hash, the client chooses the names. In a hash table of libstdc++ without a seed,
// the chosen names would be in one bucket.
TEST(BoundaryBook, NamesThatCollideAreNoSlower) {
  const double ratio = testing::FloodCost(testing::EqualRemainders(testing::FloodKeys(60'000)),
                                          [](const auto& names) {
                                            BoundaryBook book(names.size());
                                            for (int round = 0; round < 8; ++round) {
                                              for (const PrefixName name : names) book.Seen(name);
                                            }
                                            EXPECT_GT(book.ChanceOfAnother(names.front()), 0.9);
                                          });
  EXPECT_LT(ratio, 3);
}

}  // namespace
}  // namespace kvcast
