// The order of the work for newcomers: connections that have got no reply, or only error replies.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/newcomer_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace kvcast {
namespace {

using Queue = NewcomerQueue<int>;
using Work = Queue::Work;

constexpr int64_t kNowUs = 1'000'000;

// The order of the next `count` pieces of work: f (find), a (accept), r (request), l (lingering), -
// (none).
std::string Order(Queue& queue, int count) {
  std::string order;
  for (int i = 0; i < count; ++i) {
    switch (queue.Next(kNowUs)) {
      case Work::kFind:
        order += 'f';
        break;
      case Work::kAccept:
        order += 'a';
        break;
      case Work::kRequest:
        queue.TakeRequest();
        order += 'r';
        break;
      case Work::kLingering:
        queue.TakeLingering();
        order += 'l';
        break;
      case Work::kNone:
        order += '-';
        break;
    }
  }
  return order;
}

void AddRequests(Queue& queue, int count) {
  for (int i = 0; i < count; ++i) queue.AddRequest(i, "client", /*is_short=*/true);
}

// Uses the time that newcomers have, except `left_us`.
void LeaveTime(Queue& queue, int64_t left_us) {
  for (int64_t to_spend = NewcomerBudget::kMostUs - left_us; to_spend > 0;
       to_spend -= NewcomerBudget::kMostSpentUs) {
    queue.Spend(std::min(to_spend, NewcomerBudget::kMostSpentUs));
  }
}

class NewcomerQueueTest : public ::testing::Test {
 protected:
  NewcomerQueueTest() { queue.BeginSlice(kNowUs); }

  Queue queue;
};

TEST_F(NewcomerQueueTest, WithoutWorkThereIsNothingToDo) {
  EXPECT_FALSE(queue.has_work());
  EXPECT_EQ(queue.Next(kNowUs), Work::kNone);
}

TEST_F(NewcomerQueueTest, RequestsAreReadInTheirOrder) {
  queue.AddRequest(5, "client", /*is_short=*/true);
  queue.AddRequest(6, "client", /*is_short=*/true);
  EXPECT_EQ(queue.Next(kNowUs), Work::kRequest);
  EXPECT_EQ(queue.TakeRequest(), 5);
  EXPECT_EQ(queue.TakeRequest(), 6);
  EXPECT_FALSE(queue.has_work());
}

// A flood of long requests does not delay a health check. A flood of short requests delays a long
// request, but the long request is still read.
TEST_F(NewcomerQueueTest, ShortRequestsAreFirstButNotAlways) {
  const int most = Queue::kMostInATurn;
  for (int i = 0; i < 3; ++i) queue.AddRequest(-1, "client", /*is_short=*/false);
  queue.AddRequest(0, "client", /*is_short=*/true);
  EXPECT_EQ(queue.TakeRequest(), 0);
  EXPECT_EQ(queue.TakeRequest(), -1);
  AddRequests(queue, 2 * most);
  std::string order;
  for (int i = 2; i < 2 * most; ++i) order += queue.TakeRequest() < 0 ? 'l' : 's';
  EXPECT_EQ(order, "ssssslsssssssl");
  EXPECT_EQ(queue.TakeRequest(), most * 2 - 4);
}

TEST_F(NewcomerQueueTest, RequestsOfOneClientDoNotDelayAnother) {
  for (const bool is_short : {true, false}) {
    for (int i = 0; i < 5; ++i) queue.AddRequest(i, "flood", is_short);
    queue.AddRequest(9, "client", is_short);
    EXPECT_EQ(queue.TakeRequest(), 0);
    EXPECT_EQ(queue.TakeRequest(), 9);
    for (int i = 1; i < 5; ++i) EXPECT_EQ(queue.TakeRequest(), i);
  }
}

// Many new connections do not delay the requests. Many requests do not delay the new connections.
TEST_F(NewcomerQueueTest, ConnectionsAndRequestsTakeTurns) {
  queue.SetToAccept(true);
  AddRequests(queue, 2 * Queue::kMostInATurn + 1);
  EXPECT_EQ(Order(queue, 22), "arrrrrrrrarrrrrrrraraa");
  queue.SetToAccept(false);
  AddRequests(queue, 12);
  EXPECT_EQ(Order(queue, 13), "rrrrrrrrrrrr-");
}

TEST_F(NewcomerQueueTest, EachTurnFindsConnectionsThatHaveBytes) {
  queue.SetToFind(true);
  EXPECT_TRUE(queue.has_work());
  EXPECT_EQ(Order(queue, 2), "ff");
  queue.SetToAccept(true);
  AddRequests(queue, Queue::kMostInATurn + 1);
  EXPECT_EQ(Order(queue, 15), "arrrrrrrrfarfaf");
  queue.SetToFind(false);
  EXPECT_EQ(Order(queue, 2), "aa");
}

// A health check may wait to be found or to be accepted, so it waits for few long requests.
TEST_F(NewcomerQueueTest, ALongRequestEndsTheTurn) {
  queue.SetToAccept(true);
  for (int i = 0; i < 3; ++i) queue.AddRequest(i, "client", /*is_short=*/false);
  EXPECT_EQ(Order(queue, 4), "arar");
  AddRequests(queue, 3);
  EXPECT_EQ(Order(queue, 6), "arrrra");
}

// A slice ends after kSliceUs, even if other threads have used this time. The budget does not count
// the time of other threads.
TEST_F(NewcomerQueueTest, ASliceEndsAfterItsTime) {
  queue.SetToAccept(true);
  EXPECT_EQ(queue.Next(kNowUs + Queue::kSliceUs - 1), Work::kAccept);
  EXPECT_EQ(queue.Next(kNowUs + Queue::kSliceUs), Work::kNone);
  EXPECT_TRUE(queue.has_work());
  queue.BeginSlice(kNowUs + Queue::kSliceUs);
  EXPECT_EQ(queue.Next(kNowUs + Queue::kSliceUs), Work::kAccept);
}

TEST_F(NewcomerQueueTest, LingeringConnectionsWaitForAllOtherWork) {
  queue.AddLingering(0);
  queue.AddLingering(1);
  AddRequests(queue, 2);
  EXPECT_EQ(Order(queue, 5), "rrll-");
  queue.AddLingering(0);
  queue.SetToAccept(true);
  EXPECT_EQ(Order(queue, 3), "aaa");
  queue.SetToAccept(false);
  EXPECT_EQ(Order(queue, 2), "l-");
}

// A lingering connection has bytes after a refusal. During a flood of requests, these bytes are not
// read, so they take no time of the later requests.
TEST_F(NewcomerQueueTest, LingeringConnectionsNeedSpareTime) {
  queue.AddLingering(0);
  EXPECT_EQ(queue.Next(kNowUs), Work::kLingering);
  LeaveTime(queue, NewcomerBudget::kMostUs / 2 - 1);
  EXPECT_EQ(queue.Next(kNowUs), Work::kNone);
  EXPECT_TRUE(queue.has_work());
  AddRequests(queue, 1);
  EXPECT_EQ(Order(queue, 2), "r-");
  EXPECT_EQ(queue.Next(kNowUs + 2 * NewcomerBudget::kShare), Work::kLingering);
}

TEST_F(NewcomerQueueTest, WithoutTimeAllWorkWaits) {
  EXPECT_EQ(queue.Next(kNowUs), Work::kNone);
  LeaveTime(queue, 0);
  queue.SetToAccept(true);
  AddRequests(queue, 1);
  queue.AddLingering(0);
  EXPECT_EQ(Order(queue, 2), "--");
  EXPECT_EQ(queue.Next(kNowUs + NewcomerBudget::kShare), Work::kAccept);
}

TEST_F(NewcomerQueueTest, TheOldestOfTooManyLingeringConnectionsIsClosed) {
  const auto most = static_cast<int>(Queue::kMostLingering);
  for (int i = 0; i < most; ++i) EXPECT_FALSE(queue.AddLingering(i).has_value());
  EXPECT_EQ(queue.AddLingering(most), 0);
  EXPECT_EQ(queue.AddLingering(most + 1), 1);
  EXPECT_EQ(queue.TakeLingering(), 2);
}

}  // namespace
}  // namespace kvcast
