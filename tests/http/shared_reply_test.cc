// A shared reply is made once for all requests that were received before its making began, and is
// never older than a request.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/shared_reply.h"

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>
#include <thread>

namespace kvcast {
namespace {

TEST(SharedReply, IsMadeOnceForTheRequestsThatWaited) {
  int made = 0;
  SharedReply reply([&made] { return HttpReply{.body = std::to_string(++made)}; });
  const int64_t early_us = SteadyUs();
  EXPECT_EQ(reply.Get(early_us).body, "1");
  EXPECT_EQ(reply.Get(early_us).body, "1");
  const int64_t late_us = SteadyUs() + 1;  // after the making of the first reply began
  EXPECT_EQ(reply.Get(late_us).body, "2");
}

TEST(SharedReply, IsNeverOlderThanItsRequest) {
  int made = 0;
  SharedReply reply([&made] { return HttpReply{.body = std::to_string(++made)}; });
  constexpr int64_t kLatest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(reply.Get(kLatest).body, "1");
  EXPECT_EQ(reply.Get(kLatest).body, "2");
}

TEST(SharedReply, AReplyThatCannotBeMadeIsNotShared) {
  bool fails = false;
  int made = 0;
  SharedReply reply([&]() -> HttpReply {
    if (fails) throw std::bad_alloc();
    return {.body = std::to_string(++made)};
  });
  EXPECT_EQ(reply.Get(SteadyUs()).body, "1");
  const int64_t late_us = SteadyUs() + 1;
  while (SteadyUs() < late_us) std::this_thread::yield();
  fails = true;
  EXPECT_THROW(reply.Get(late_us), std::bad_alloc);
  fails = false;
  EXPECT_EQ(reply.Get(late_us).body, "2");
}

}  // namespace
}  // namespace kvcast
