// FairQueue: the keys take turns.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/fair_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace kvcast {
namespace {

// The items of the queue in the order in which Pop returns them.
std::string PopAll(FairQueue<int, char>& queue) {
  std::string items;
  while (!queue.empty()) items += queue.Pop();
  return items;
}

TEST(FairQueue, TheItemsOfOneKeyKeepTheirOrder) {
  FairQueue<int, char> queue;
  EXPECT_TRUE(queue.empty());
  for (const char item : std::string("abc")) queue.Push(1, item);
  EXPECT_EQ(PopAll(queue), "abc");
}

TEST(FairQueue, TheKeysTakeTurns) {
  FairQueue<int, char> queue;
  for (const char item : std::string("abcd")) queue.Push(1, item);
  for (const char item : std::string("xy")) queue.Push(2, item);
  queue.Push(3, '!');
  EXPECT_EQ(PopAll(queue), "ax!bycd");
}

TEST(FairQueue, AKeyThatReturnsWaitsForTheOthers) {
  FairQueue<int, char> queue;
  queue.Push(1, 'a');
  queue.Push(2, 'x');
  queue.Push(2, 'y');
  EXPECT_EQ(queue.Pop(), 'a');
  queue.Push(1, 'b');
  EXPECT_EQ(PopAll(queue), "xby");
}

}  // namespace
}  // namespace kvcast
