// ReadySockets: the sockets that have bytes or room, a bounded number at a time.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/ready_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/descriptor.h"

namespace kvcast {
namespace {

// Two connected sockets.
struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    client = Descriptor(ends[0]);
    server = Descriptor(ends[1]);
  }
  void Send() const { EXPECT_EQ(send(client.get(), "x", 1, 0), 1); }

  Descriptor client;
  Descriptor server;
};

class ReadySocketsTest : public ::testing::Test {
 protected:
  ReadySocketsTest() { EXPECT_TRUE(ready.is_open()); }

  std::vector<uint64_t> Take() {
    std::vector<uint64_t> ids;
    more = ready.Take([&ids](uint64_t id) { ids.push_back(id); });
    std::ranges::sort(ids);
    return ids;
  }
  // Runs the handlers that are ready. Returns the number of calls of the handler of AsyncWait.
  int Calls() {
    io.restart();
    io.poll();
    return calls;
  }

  boost::asio::io_context io;
  ReadySockets ready{io, ReadySockets::For::kBytes};
  bool more = false;
  int calls = 0;
};

using Ids = std::vector<uint64_t>;

TEST_F(ReadySocketsTest, OnlySocketsWithBytesAreReady) {
  const Pair first;
  const Pair second;
  EXPECT_TRUE(ready.Watch(first.server.get(), 7));
  EXPECT_TRUE(ready.Watch(second.server.get(), 8));
  EXPECT_EQ(Take(), Ids{});
  second.Send();
  EXPECT_EQ(Take(), Ids{8});
  EXPECT_FALSE(more);
}

TEST_F(ReadySocketsTest, ASocketIsReadyOnceForEachWatch) {
  const Pair pair;
  pair.Send();
  EXPECT_TRUE(ready.Watch(pair.server.get(), 7));
  EXPECT_EQ(Take(), Ids{7});
  pair.Send();
  EXPECT_EQ(Take(), Ids{}) << "the socket is not watched";
  EXPECT_TRUE(ready.Watch(pair.server.get(), 7));
  EXPECT_EQ(Take(), Ids{7});
}

TEST_F(ReadySocketsTest, ASocketThatTheClientHasClosedIsReady) {
  Pair pair;
  EXPECT_TRUE(ready.Watch(pair.server.get(), 7));
  pair.client = Descriptor();
  EXPECT_EQ(Take(), Ids{7});
}

TEST_F(ReadySocketsTest, ASocketWithoutRoomIsNotReady) {
  const Pair pair;
  ReadySockets full(io, ReadySockets::For::kRoom);
  const auto take = [&full] {
    Ids ids;
    full.Take([&ids](uint64_t id) { ids.push_back(id); });
    return ids;
  };
  pair.Send();  // bytes that the server could read
  EXPECT_TRUE(full.Watch(pair.server.get(), 7));
  EXPECT_EQ(take(), Ids{7});
  std::array<char, 4096> bytes = {};
  size_t sent = 0;
  while (send(pair.server.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    sent += bytes.size();
  }
  EXPECT_TRUE(full.Watch(pair.server.get(), 7));
  EXPECT_EQ(take(), Ids{});
  for (; sent > 0; sent -= bytes.size()) {
    EXPECT_GT(recv(pair.client.get(), bytes.data(), bytes.size(), MSG_WAITALL), 0);
  }
  EXPECT_EQ(take(), Ids{7});
}

TEST_F(ReadySocketsTest, AClosedSocketIsNotWatched) {
  Pair pair;
  EXPECT_TRUE(ready.Watch(pair.server.get(), 7));
  pair.Send();
  pair.server = Descriptor();
  EXPECT_EQ(Take(), Ids{});
  EXPECT_FALSE(ready.Watch(-1, 7));
}

TEST_F(ReadySocketsTest, ABoundedNumberIsTaken) {
  const std::vector<Pair> pairs(ReadySockets::kMostTaken + 1);
  Ids all;
  for (const Pair& pair : pairs) {
    EXPECT_TRUE(ready.Watch(pair.server.get(), all.size()));
    all.push_back(all.size());
    pair.Send();
  }
  Ids taken = Take();
  EXPECT_EQ(taken.size(), ReadySockets::kMostTaken);
  EXPECT_TRUE(more);
  const Ids remaining = Take();
  EXPECT_FALSE(more);
  taken.insert(taken.end(), remaining.begin(), remaining.end());
  std::ranges::sort(taken);
  EXPECT_EQ(taken, all);
}

TEST_F(ReadySocketsTest, TheHandlerIsCalledOnceForEachWait) {
  const Pair pair;
  EXPECT_TRUE(ready.Watch(pair.server.get(), 7));
  ready.AsyncWait([this] { ++calls; });
  EXPECT_EQ(Calls(), 0);
  pair.Send();
  EXPECT_EQ(Calls(), 1);
  EXPECT_EQ(Calls(), 1);
  ready.AsyncWait([this] { ++calls; });
  EXPECT_EQ(Calls(), 2) << "the socket was not taken";
  EXPECT_EQ(Take(), Ids{7});
  ready.AsyncWait([this] { ++calls; });
  EXPECT_EQ(Calls(), 2);
}

}  // namespace
}  // namespace kvcast
