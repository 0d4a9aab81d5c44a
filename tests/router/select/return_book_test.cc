// ReturnBook learns how often the tails of prompts are used again.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/return_book.h"

#include <gtest/gtest.h>

#include "tests/support/flood.h"

namespace kvcast {
namespace {

constexpr double kLater = 1000;  // seconds; all tails are old enough to count

// Routes conversations `first`, first + 1 and so on, one per second from time 0 on.
void Route(ReturnBook& book, PrefixName first, int count, Turn turn = Turn::kFirst) {
  for (int i = 0; i < count; ++i) book.Routed(first + static_cast<PrefixName>(i), turn, i);
}

TEST(ReturnBook, WithoutEvidenceEachTailMayReturn) {
  ReturnBook book;
  EXPECT_EQ(book.ChanceAtMost(Turn::kFirst, 0), 1);
  Route(book, 1, 3);
  EXPECT_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 1);
}

TEST(ReturnBook, TheLimitFollowsTheRuleOfThree) {
  ReturnBook book;
  Route(book, 1, 100);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.03);
  for (PrefixName name = 1; name <= 20; ++name) book.Continued(name);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.23);
  book.Shared();
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.24);
}

TEST(ReturnBook, YoungTailsAreNoEvidence) {
  ReturnBook book;
  Route(book, 1, 60);
  EXPECT_EQ(book.ChanceAtMost(Turn::kFirst, 59.5), 1);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, 109), 3.0 / 50);
}

TEST(ReturnBook, ATailReturnsOnceAndAnUnknownOneNever) {
  ReturnBook book;
  Route(book, 1, 100);
  for (int i = 0; i < 10; ++i) book.Continued(1);
  book.Continued(5000);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.04);
}

TEST(ReturnBook, FirstAndLaterPromptsAreLearnedApart) {
  ReturnBook book;
  Route(book, 1, 100);
  Route(book, 1000, 100, Turn::kLater);
  for (PrefixName name = 1000; name < 1050; ++name) book.Continued(name);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.03);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kLater, kLater), 0.53);
  book.Shared();
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.04);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kLater, kLater), 0.54);
}

TEST(ReturnBook, DropsTheOldestTails) {
  ReturnBook book(10);
  Route(book, 1, 100);
  book.Continued(90);  // dropped
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.03);
  book.Continued(91);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 0.04);
}

TEST(ReturnBook, ATailThatIsSentAgainIsYoungAgain) {
  ReturnBook book(10);
  Route(book, 1, 2);
  book.Continued(1);
  Route(book, 1, 1);
  Route(book, 3, 9);  // one more tail than the book keeps
  book.Continued(2);  // dropped
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 4.0 / 12);
  book.Continued(1);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 5.0 / 12);
}

TEST(ReturnBook, TailsThatReturnedTakeNoRoom) {
  ReturnBook book(10);
  Route(book, 1, 10);
  for (PrefixName name = 2; name <= 10; ++name) book.Continued(name);
  Route(book, 11, 9);
  book.Continued(1);
  EXPECT_DOUBLE_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 13.0 / 19);
}

// In a query by hash, the client chooses the names. In a hash table of libstdc++ without a seed,
// the chosen names would be in one bucket.
TEST(ReturnBook, NamesThatCollideAreNoSlower) {
  const double ratio = testing::FloodCost(testing::EqualRemainders(testing::FloodKeys(60'000)),
                                          [](const auto& names) {
                                            ReturnBook book(names.size());
                                            for (const PrefixName name : names)
                                              book.Routed(name, Turn::kFirst, 0);
                                            for (const PrefixName name : names)
                                              book.Continued(name);
                                            EXPECT_EQ(book.ChanceAtMost(Turn::kFirst, kLater), 1);
                                          });
  EXPECT_LT(ratio, 3);
}

}  // namespace
}  // namespace kvcast
