// The client with the most connections makes room for a new connection.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/client_connections.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kvcast {
namespace {

using Place = ClientConnections::Place;

Place OpenQuiet(ClientConnections& connections, const std::string& client, uint64_t id) {
  Place place = connections.Open(client);
  connections.SetQuiet(place, id);
  return place;
}

TEST(ClientConnections, TheClientWithTheMostConnectionsMakesRoom) {
  ClientConnections connections;
  OpenQuiet(connections, "few", 1);
  OpenQuiet(connections, "many", 2);
  OpenQuiet(connections, "many", 3);
  EXPECT_EQ(connections.ToClose("new"), 2);
}

TEST(ClientConnections, TheConnectionThatIsQuietLongestMakesRoom) {
  ClientConnections connections;
  Place first = OpenQuiet(connections, "a", 1);
  OpenQuiet(connections, "b", 2);
  EXPECT_EQ(connections.ToClose("new"), 1);
  connections.SetBusy(first);
  EXPECT_EQ(connections.ToClose("new"), 2);
  connections.SetQuiet(first, 1);
  EXPECT_EQ(connections.ToClose("new"), 2);
}

TEST(ClientConnections, AConnectionThatIsNotQuietMakesNoRoom) {
  ClientConnections connections;
  EXPECT_EQ(connections.ToClose("new"), std::nullopt);
  connections.Open("many");
  connections.Open("many");
  EXPECT_EQ(connections.ToClose("new"), std::nullopt);
  OpenQuiet(connections, "few", 3);
  EXPECT_EQ(connections.ToClose("new"), 3);
}

TEST(ClientConnections, AClientTakesNoRoomFromAClientThatWouldThenHaveFewerConnections) {
  ClientConnections connections;
  connections.Open("many");
  connections.Open("many");
  OpenQuiet(connections, "few", 1);
  EXPECT_EQ(connections.ToClose("many"), std::nullopt);
  EXPECT_EQ(connections.ToClose("few"), 1);
  connections.Open("few");
  connections.Open("few");
  EXPECT_EQ(connections.ToClose("many"), std::nullopt) << "3 and 2 connections";
  OpenQuiet(connections, "many", 2);
  EXPECT_EQ(connections.ToClose("many"), 2);
  connections.Open("few");
  connections.Open("few");
  EXPECT_EQ(connections.ToClose("many"), 1) << "5 and 3 connections";
  EXPECT_EQ(connections.ToClose("new"), 1);
}

// The order of the model is computed from the open connections alone.
TEST(ClientConnections, IsEqualToAModel) {
  struct Opened {
    std::string client;
    Place place;
    uint64_t since = 0;  // 0: not quiet
    uint64_t id = 0;
  };
  std::mt19937 random(1);
  ClientConnections connections;
  std::vector<Opened> opened;
  uint64_t next = 1;
  const auto expected = [&opened](const std::string& newcomer) -> std::optional<uint64_t> {
    std::map<std::string, int64_t> counts;
    for (const Opened& one : opened) --counts[one.client];
    std::map<std::pair<int64_t, uint64_t>, uint64_t> quiet;
    for (const Opened& one : opened) {
      if (one.since != 0) quiet[{counts[one.client], one.since}] = one.id;
    }
    if (quiet.empty()) return std::nullopt;
    if (counts[newcomer] == 0 || counts[newcomer] - 1 > quiet.begin()->first.first) {
      return quiet.begin()->second;
    }
    std::map<uint64_t, uint64_t> own;
    for (const Opened& one : opened) {
      if (one.since != 0 && one.client == newcomer) own[one.since] = one.id;
    }
    if (own.empty()) return std::nullopt;
    return own.begin()->second;
  };
  for (int step = 0; step < 20'000; ++step) {
    const size_t any = opened.empty() ? 0 : random() % opened.size();
    if (opened.empty() || (random() % 4 == 0 && opened.size() < 40)) {
      const std::string client = std::to_string(random() % 5);
      opened.push_back({.client = client, .place = connections.Open(client), .id = next++});
    } else if (Opened& one = opened[any]; one.since == 0 && random() % 3 == 0) {
      connections.Close(one.place);
      opened.erase(opened.begin() + static_cast<std::ptrdiff_t>(any));
    } else if (one.since == 0) {
      connections.SetQuiet(one.place, one.id);
      one.since = next++;
    } else {
      connections.SetBusy(one.place);
      one.since = 0;
    }
    const std::string newcomer = std::to_string(random() % 6);
    ASSERT_EQ(connections.ToClose(newcomer), expected(newcomer)) << "step " << step;
  }
}

}  // namespace
}  // namespace kvcast
