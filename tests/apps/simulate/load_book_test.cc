// The load book counts the unfinished work of each engine. The approximate index removes a prefix
// when the index's lifetime for prefixes has passed.
// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/load_book.h"

#include <gtest/gtest.h>

#include "apps/simulate/approximate_index.h"

namespace kvcast::simulate {
namespace {

using Prefixes = std::vector<PrefixNumber>;

TEST(LoadBook, CountsUntilTheFirstTokenAndTheEnd) {
  LoadBook book(2, 2, 10);
  book.Routed(0, 1, 100, 30, Prefixes{0, 1});
  book.Routed(1, 1, 50, 80, Prefixes{0, 1, 2});  // a hit longer than the prompt counts no token
  EXPECT_EQ(book.of(0).requests, 0);
  EXPECT_EQ(book.of(1).requests, 2);
  EXPECT_EQ(book.of(1).prefill_requests, 2);
  EXPECT_EQ(book.of(1).prefill_tokens, 70);
  EXPECT_EQ(book.of(1).context_tokens, 150);
  book.FirstToken(0);
  book.FirstToken(0);  // a second report changes nothing
  EXPECT_EQ(book.of(1).prefill_requests, 1);
  EXPECT_EQ(book.of(1).prefill_tokens, 0);
  EXPECT_EQ(book.of(1).requests, 2);
  book.Finished(0, Prefixes{0, 1});
  book.Finished(0, Prefixes{0, 1});
  EXPECT_EQ(book.of(1).requests, 1);
  EXPECT_EQ(book.of(1).context_tokens, 50);
}

TEST(LoadBook, SharedBlocksCountOnce) {
  LoadBook book(2, 3, 10);
  book.Routed(0, 0, 100, 0, Prefixes{0, 1});
  book.Routed(1, 0, 100, 0, Prefixes{0, 1, 2});
  book.Routed(2, 1, 100, 0, Prefixes{0, 1});
  EXPECT_EQ(book.of(0).blocks, 3);
  EXPECT_EQ(book.of(1).blocks, 2);
  EXPECT_EQ(book.SharedWith(0, Prefixes{0, 1, 2, 3}), 3);
  EXPECT_EQ(book.SharedWith(1, Prefixes{0, 1, 2, 3}), 2);
  book.Finished(1, Prefixes{0, 1, 2});
  EXPECT_EQ(book.of(0).blocks, 2);
  EXPECT_EQ(book.SharedWith(0, Prefixes{0, 1, 2, 3}), 2);
}

TEST(LoadBook, RequestThatEndsBeforeItsFirstTokenLeavesNothing) {
  LoadBook book(1, 1, 4);
  book.Routed(0, 0, 100, 10, Prefixes{0, 1});
  book.Finished(0, Prefixes{0, 1});
  EXPECT_EQ(book.of(0).requests, 0);
  EXPECT_EQ(book.of(0).prefill_tokens, 0);
  EXPECT_EQ(book.of(0).prefill_requests, 0);
  EXPECT_EQ(book.of(0).context_tokens, 0);
  EXPECT_EQ(book.of(0).blocks, 0);
}

TEST(LoadBook, RequestCanBeSentAgain) {
  LoadBook book(2, 1, 4);
  book.Routed(0, 0, 100, 0, Prefixes{0});
  book.Finished(0, Prefixes{0});
  book.Routed(0, 1, 100, 60, Prefixes{0});
  EXPECT_EQ(book.of(0).requests, 0);
  EXPECT_EQ(book.of(1).prefill_tokens, 40);
}

TEST(ApproximateIndex, HoldsRoutedPrefixesForTheLifetime) {
  ApproximateIndex index(2, 5);
  const Prefixes prompt = {0, 1, 2};
  EXPECT_EQ(index.Match(0, prompt, 0), 0);
  index.Routed(0, Prefixes{0, 1}, 10);
  EXPECT_EQ(index.Match(0, prompt, 10), 2);
  EXPECT_EQ(index.Match(1, prompt, 10), 0);
  EXPECT_EQ(index.Match(0, prompt, 10 + ApproximateIndex::kLifetimeSeconds), 2);
  EXPECT_EQ(index.Match(0, prompt, 11 + ApproximateIndex::kLifetimeSeconds), 0);
}

TEST(ApproximateIndex, TheLifetimeOfASharedPrefixBeginsAtItsLastRouting) {
  ApproximateIndex index(1, 5);
  index.Routed(0, Prefixes{0, 1}, 0);
  index.Routed(0, Prefixes{0, 3}, 100);
  EXPECT_EQ(index.Match(0, Prefixes{0, 1}, 150), 1);
  EXPECT_EQ(index.Match(0, Prefixes{0, 3}, 150), 2);
}

TEST(ApproximateIndex, RemovesThePrefixesOfOneEngine) {
  ApproximateIndex index(2, 5);
  index.Routed(0, Prefixes{0}, 0);
  index.Routed(1, Prefixes{0}, 0);
  index.Forget(0);
  EXPECT_EQ(index.Match(0, Prefixes{0}, 1), 0);
  EXPECT_EQ(index.Match(1, Prefixes{0}, 1), 1);
}

}  // namespace
}  // namespace kvcast::simulate
