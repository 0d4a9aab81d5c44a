// SequenceBook finds the conversation that a prompt continues, and learns how probable it is that a
// conversation goes on.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/sequence_book.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/flood.h"

namespace kvcast {
namespace {

using Names = std::vector<PrefixName>;

constexpr WorkerId kFirst{1};
constexpr WorkerId kSecond{2};

// The names of a prompt's prefixes: first, first + 1 and so on.
Names Prefixes(PrefixName first, size_t blocks) {
  Names names(blocks);
  std::iota(names.begin(), names.end(), first);
  return names;
}

// Routes the prompt as the next prompt of its conversation.
PrefixName Route(SequenceBook& book, const Names& prompt, WorkerId worker, int64_t tokens,
                 double now_s) {
  return book.Routed(book.Find(prompt), prompt, worker, tokens, now_s);
}

TEST(SequenceBook, APromptContinuesTheConversationWhoseLastPromptIsItsPrefix) {
  SequenceBook book;
  const PrefixName name = Route(book, Prefixes(10, 3), kFirst, 50, 1);
  EXPECT_EQ(name, 12u);
  EXPECT_EQ(book.Find(Prefixes(10, 4)), name);
  EXPECT_EQ(book.Find(Prefixes(10, 3)), name) << "the same prompt again";
  EXPECT_EQ(book.Find(Prefixes(10, 2)), std::nullopt) << "shorter than the last prompt";
  EXPECT_EQ(book.Find(Names{10, 11, 77}), std::nullopt) << "the last block differs";
  EXPECT_EQ(book.Find({}), std::nullopt);
}

TEST(SequenceBook, TheNextPromptGivesTheConversationItsWorkerAndLength) {
  SequenceBook book;
  Route(book, Prefixes(10, 3), kFirst, 50, 1);
  const PrefixName name = Route(book, Prefixes(10, 5), kSecond, 85, 2);
  EXPECT_EQ(book.size(), 1u);
  EXPECT_EQ(book.Find(Prefixes(10, 4)), std::nullopt) << "the conversation has gone on";
  ASSERT_EQ(book.Find(Prefixes(10, 9)), name);
  EXPECT_EQ(book.of(name).worker, kSecond);
  EXPECT_EQ(book.of(name).tokens, 85);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 2), 0);
  EXPECT_EQ(book.ExpectedTokens(kSecond, {}, 2), 85);
}

TEST(SequenceBook, TheLongestConversationCounts) {
  SequenceBook book;
  book.Routed({}, Prefixes(10, 3), kFirst, 50, 1);
  book.Routed({}, Prefixes(10, 5), kSecond, 85, 1);
  EXPECT_EQ(book.Find(Prefixes(10, 6)), 14u);
  EXPECT_EQ(book.Find(Prefixes(10, 4)), 12u);
}

TEST(SequenceBook, LooksAtTheLastBlocksOfAPromptOnly) {
  SequenceBook book;
  Route(book, Prefixes(1, 44), kFirst, 700, 1);
  EXPECT_EQ(book.Find(Prefixes(1, 44 + 255)), 44u);
  EXPECT_EQ(book.Find(Prefixes(1, 44 + 256)), std::nullopt);
}

// 100 conversations end at second 0. Half of them go on at second 1, and end again at second 1.
TEST(SequenceBook, LearnsTheChanceByTheIdleTime) {
  SequenceBook book;
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0), 0);
  EXPECT_DOUBLE_EQ(book.ChanceToContinue(1), 0.5) << "no data";
  for (PrefixName i = 0; i < 100; ++i) {
    book.Ended(Route(book, Prefixes(1000 * i, 3), kFirst, 50, 0), 0);
  }
  for (PrefixName i = 0; i < 50; ++i) {
    book.Ended(Route(book, Prefixes(1000 * i, 4), kFirst, 66, 1), 1);
  }
  book.ExpectedTokens(kFirst, {}, 1000);
  EXPECT_NEAR(book.ChanceToContinue(0), 50.5 / (50 + 100 + 1), 1e-6) << "of 150 ends";
  EXPECT_NEAR(book.ChanceToContinue(10), 0.5 / (100 + 1), 1e-6)
      << "no conversation goes on later than 1 s";
  EXPECT_GT(book.ChanceToContinue(0.5), book.ChanceToContinue(1));
  EXPECT_GT(book.ChanceToContinue(1), book.ChanceToContinue(2));
}

TEST(SequenceBook, TokensOfAnIdleConversationCountByItsChance) {
  SequenceBook book;
  const PrefixName name = Route(book, Prefixes(10, 3), kFirst, 600, 0);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0), 600) << "active";
  EXPECT_EQ(book.ExpectedTokens(kFirst, name, 0), 0) << "without the prompt's own conversation";
  EXPECT_EQ(book.ExpectedTokens(kSecond, {}, 0), 0);
  book.Ended(name, 10);
  const double idle = book.ExpectedTokens(kFirst, {}, 30);
  EXPECT_DOUBLE_EQ(idle, 600 * book.ChanceToContinue(20));
  EXPECT_LT(idle, 600);
  EXPECT_EQ(book.ExpectedTokens(kFirst, name, 30), 0);
}

TEST(SequenceBook, ANewRequestCountsAtOnceAndAnEndAfterTheNextRefresh) {
  SequenceBook book;
  const PrefixName name = Route(book, Prefixes(10, 3), kFirst, 600, 0);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0), 600);
  Route(book, Prefixes(90, 3), kFirst, 100, 0.1);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0.1), 700);
  Route(book, Prefixes(90, 4), kSecond, 120, 0.1);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0.1), 600) << "the conversation has moved";
  EXPECT_EQ(book.ExpectedTokens(kSecond, {}, 0.1), 120);
  book.Ended(name, 0.1);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0.2), 600);
  EXPECT_LT(book.ExpectedTokens(kFirst, {}, 0.25), 600);
}

TEST(SequenceBook, TheSamePromptTwiceIsOneConversationWithTwoRequests) {
  SequenceBook book;
  const PrefixName name = Route(book, Prefixes(10, 3), kFirst, 600, 0);
  EXPECT_EQ(Route(book, Prefixes(10, 3), kSecond, 600, 0), name);
  EXPECT_EQ(book.of(name).active, 2);
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 0), 0) << "the second request is on the other worker";
  book.Ended(name, 1);
  EXPECT_EQ(book.of(name).active, 1);
  book.Ended(name, 2);
  book.Ended(name, 3);
  EXPECT_EQ(book.of(name).active, 0);
  EXPECT_EQ(book.of(name).last_s, 2);
}

TEST(SequenceBook, AConversationThatGoesOnEarlyEndsWithItsLastRequest) {
  SequenceBook book;
  const PrefixName earlier = Route(book, Prefixes(10, 3), kFirst, 600, 0);
  const PrefixName later = Route(book, Prefixes(10, 5), kFirst, 640, 1);
  EXPECT_EQ(book.of(later).active, 1);
  book.Ended(later, 2);
  book.Ended(earlier, 3);
  EXPECT_EQ(book.of(later).active, 0);
  EXPECT_EQ(book.of(later).last_s, 2);
}

TEST(SequenceBook, DropsTheConversationsWithTheOldestRequests) {
  SequenceBook book(2);
  Route(book, Prefixes(10, 3), kFirst, 50, 1);
  Route(book, Prefixes(20, 3), kFirst, 50, 2);
  Route(book, Prefixes(10, 4), kFirst, 50, 3);  // continues the first conversation
  Route(book, Prefixes(30, 3), kFirst, 50, 4);
  EXPECT_EQ(book.size(), 2u);
  EXPECT_FALSE(book.Find(Prefixes(20, 9)));
  EXPECT_TRUE(book.Find(Prefixes(10, 9)));
  EXPECT_TRUE(book.Find(Prefixes(30, 9)));
  for (size_t blocks = 5; blocks < 1000; ++blocks) {
    Route(book, Prefixes(10, blocks), kFirst, 50, 5);
    ASSERT_LE(book.size(), 2u);
    ASSERT_TRUE(book.Find(Prefixes(10, blocks)));
  }
}

TEST(SequenceBook, TheSamePromptAgainMakesAConversationYoung) {
  SequenceBook book(2);
  Route(book, Prefixes(10, 3), kFirst, 50, 1);
  Route(book, Prefixes(20, 3), kFirst, 50, 2);
  Route(book, Prefixes(10, 3), kFirst, 50, 3);
  Route(book, Prefixes(30, 3), kFirst, 50, 4);
  EXPECT_TRUE(book.Find(Prefixes(10, 3)));
  EXPECT_FALSE(book.Find(Prefixes(20, 3)));
}

TEST(SequenceBook, ForgetsTheConversationsOfAWorker) {
  SequenceBook book;
  const PrefixName name = Route(book, Prefixes(10, 3), kFirst, 50, 1);
  Route(book, Prefixes(20, 3), kSecond, 70, 1);
  book.Forget(kFirst);
  EXPECT_EQ(book.size(), 1u);
  EXPECT_FALSE(book.Find(Prefixes(10, 9)));
  EXPECT_EQ(book.ExpectedTokens(kFirst, {}, 1), 0);
  EXPECT_EQ(book.ExpectedTokens(kSecond, {}, 1), 70);
  book.Ended(name, 2);  // a late report
}

// In a query by hash, the client chooses the names.
TEST(SequenceBook, ChosenNamesAreNoSlower) {
  const double ratio =
      testing::FloodCost(testing::EqualEnds(testing::FloodKeys(60'000)), [](const auto& names) {
        SequenceBook book(names.size());
        for (const PrefixName name : names) Route(book, {name}, kFirst, 50, 1);
        for (const PrefixName name : names) EXPECT_EQ(book.Find(Names{name}), name);
      });
  EXPECT_LT(ratio, 3);
}

}  // namespace
}  // namespace kvcast
