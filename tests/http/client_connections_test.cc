// The client with the most connections makes room for a new connection.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/client_connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kvcast {
namespace {

using Place = ClientConnections::Place;

class ClientConnectionsTest : public ::testing::Test {
 protected:
  Place Open(const std::string& client) {
    const Place place = connections.Open(client, next_id++);
    return place;
  }
  Place OpenBusy(const std::string& client) {
    const Place place = Open(client);
    connections.SetBusy(place);
    return place;
  }
  std::optional<uint64_t> ToClose(const std::string& newcomer = "new") const {
    return connections.ToClose(newcomer, [this](uint64_t id) { return !running.contains(id); });
  }

  ClientConnections connections;
  uint64_t next_id = 1;        // connections have the ids 1, 2 and so on
  std::set<uint64_t> running;  // busy connections whose handlers run
};

TEST_F(ClientConnectionsTest, TheClientWithTheMostConnectionsMakesRoom) {
  EXPECT_EQ(ToClose(), std::nullopt);
  Open("few");
  Open("many");
  Open("many");
  EXPECT_EQ(ToClose(), 2);
}

TEST_F(ClientConnectionsTest, TheConnectionThatIsQuietLongestMakesRoom) {
  const Place first = Open("a");
  Open("b");
  EXPECT_EQ(ToClose(), 1);
  connections.SetBusy(first);
  EXPECT_EQ(ToClose(), 2);
  connections.SetQuiet(first);
  EXPECT_EQ(ToClose(), 2);
}

TEST_F(ClientConnectionsTest, BusyConnectionsOfTheLargestClientMakeRoomAfterItsQuietOnes) {
  OpenBusy("many");
  const Place quiet = Open("many");
  Open("few");
  EXPECT_EQ(ToClose(), 2);
  connections.Close(quiet);
  OpenBusy("many");
  EXPECT_EQ(ToClose(), 1);
  running.insert(1);
  EXPECT_EQ(ToClose(), 4);
  running.insert(4);
  EXPECT_EQ(ToClose(), 3);
}

TEST_F(ClientConnectionsTest, AClientWithTheMostConnectionsGetsNoRoomFromOthers) {
  OpenBusy("many");
  OpenBusy("many");
  Open("few");
  running = {1, 2};
  EXPECT_EQ(ToClose("many"), std::nullopt);
  EXPECT_EQ(ToClose("few"), 3) << "no other client can make room";
  Open("few");
  EXPECT_EQ(ToClose("many"), std::nullopt) << "the other client has no more connections";
  Open("few");
  EXPECT_EQ(ToClose("many"), 3);
}

// The model looks at all connections for each answer.
TEST_F(ClientConnectionsTest, IsEqualToAModel) {
  struct Opened {
    std::string client;
    Place place;
    uint64_t id = 0;
    uint64_t since = 0;
    bool busy = false;
  };
  std::mt19937 random(1);
  std::vector<Opened> opened;
  uint64_t now = 0;
  std::map<std::string, uint64_t> begun;  // when the client opened its first connection
  const auto expected = [&](const std::string& newcomer) -> std::optional<uint64_t> {
    std::map<std::string, std::vector<const Opened*>> clients;
    for (const Opened& one : opened) clients[one.client].push_back(&one);
    const auto choose = [&](const std::string& client) -> std::optional<uint64_t> {
      const Opened* chosen = nullptr;
      for (const Opened* one : clients[client]) {
        if (one->busy && running.contains(one->id)) continue;
        const auto rank = [](const Opened* of) { return std::pair(of->busy, of->since); };
        if (chosen == nullptr || rank(one) < rank(chosen)) chosen = one;
      }
      if (chosen == nullptr) return std::nullopt;
      return chosen->id;
    };
    std::vector<std::tuple<int64_t, uint64_t, uint64_t, std::string>> order;
    for (const auto& [client, of] : clients) {
      uint64_t quiet_since = std::numeric_limits<uint64_t>::max();
      for (const Opened* one : of) {
        if (!one->busy) quiet_since = std::min(quiet_since, one->since);
      }
      order.emplace_back(-std::ssize(of), quiet_since, begun[client], client);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [count, quiet_since, first, client] : order) {
      const bool own = clients.contains(newcomer) && -std::ssize(clients[newcomer]) <= count;
      const auto id = choose(own ? newcomer : client);
      if (id || own) return id;
    }
    return std::nullopt;
  };
  for (int step = 0; step < 20'000; ++step) {
    const size_t any = opened.empty() ? 0 : random() % opened.size();
    if (opened.empty() || (random() % 4 == 0 && opened.size() < 40)) {
      const std::string client = std::to_string(random() % 5);
      const bool is_new = std::ranges::find(opened, client, &Opened::client) == opened.end();
      if (is_new) begun[client] = ++now;
      if (random() % 3 == 0) running.insert(next_id);
      const uint64_t id = next_id;
      opened.push_back({.client = client, .place = Open(client), .id = id, .since = ++now});
    } else if (Opened& one = opened[any]; random() % 5 == 0) {
      connections.Close(one.place);
      opened.erase(opened.begin() + static_cast<std::ptrdiff_t>(any));
    } else {
      one.busy = !one.busy;
      one.since = ++now;
      one.busy ? connections.SetBusy(one.place) : connections.SetQuiet(one.place);
    }
    const std::string newcomer = std::to_string(random() % 6);
    ASSERT_EQ(ToClose(newcomer), expected(newcomer)) << "step " << step;
  }
}

}  // namespace
}  // namespace kvcast
