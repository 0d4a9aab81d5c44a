// BoundaryBook learns how often a common prefix of two conversations is the prefix of a third.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/boundary_book.h"

#include <gtest/gtest.h>

namespace kvcast {
namespace {

void See(BoundaryBook& book, PrefixName name, int times) {
  for (int i = 0; i < times; ++i) book.Seen(name);
}

TEST(BoundaryBook, WithoutDataAnotherPromptIsAsProbableAsNot) {
  const BoundaryBook book;
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(1), 0.5);
}

TEST(BoundaryBook, LearnsTheChanceFromOtherBoundaries) {
  // Of 20 boundaries, each is seen once. 5 of them are seen again, each of these six times.
  BoundaryBook book;
  for (PrefixName name = 1; name <= 20; ++name) See(book, name, 1);
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(99), 0.5 / 21) << "no boundary came twice";
  for (PrefixName name = 1; name <= 5; ++name) See(book, name, 5);
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(99), 5.5 / 21) << "after the first prompt with it";
  EXPECT_DOUBLE_EQ(book.ChanceOfAnother(20), 5.5 / 6) << "after the second prompt with it";
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

// Clients choose the names of queries by hash. These names fall into one bucket of a table of
// libstdc++ without a seed. This test would then take minutes.
TEST(BoundaryBook, NamesThatCollideAreNoSlower) {
  constexpr PrefixName kStep = PrefixName{42043} * 85229;  // numbers of buckets
  constexpr PrefixName kNames = 60'000;
  BoundaryBook book;
  for (int round = 0; round < 60; ++round) {
    for (PrefixName name = 1; name <= kNames; ++name) book.Seen(name * kStep);
  }
  EXPECT_GT(book.ChanceOfAnother(kStep), 0.9);
}

}  // namespace
}  // namespace kvcast
