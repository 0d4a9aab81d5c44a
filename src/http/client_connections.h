// ClientConnections: the open connections of each client, and the connection that is closed to make
// room for a new one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace kvcast {

// Thread-compatible. A connection is quiet while no request of it waits for its handler, and no
// handler runs for it.
class ClientConnections {
 private:
  struct Quiet {
    uint64_t since = 0;  // a smaller number: quiet for a longer time
    uint64_t id = 0;     // of the connection
  };
  struct Client {
    size_t connections = 0;
    std::list<Quiet> quiet;  // the connection that is quiet for the longest time is first
  };
  using ClientPosition = std::map<std::string, Client>::iterator;

 public:
  // The place of an open connection.
  struct Place {
    ClientPosition client;
    std::list<Quiet>::iterator quiet;  // valid while the connection is quiet
  };

  // A connection of `client` was opened. It is not quiet.
  Place Open(const std::string& client) {
    const Place place{clients_.try_emplace(client).first, {}};
    Change(place.client, [](Client& entry) { ++entry.connections; });
    return place;
  }
  // The connection was closed. REQUIRES: it is not quiet.
  void Close(const Place& place) {
    Change(place.client, [](Client& entry) { --entry.connections; });
    if (place.client->second.connections == 0) clients_.erase(place.client);
  }
  // `id`: the result of ToClose for this connection.
  void SetQuiet(Place& place, uint64_t id) {
    const auto append = [&](Client& entry) {
      place.quiet = entry.quiet.insert(entry.quiet.end(), {next_since_++, id});
    };
    Client& client = place.client->second;
    if (!client.quiet.empty()) return append(client);
    Change(place.client, append);
  }
  void SetBusy(const Place& place) {
    const auto remove = [&](Client& entry) { entry.quiet.erase(place.quiet); };
    Client& client = place.client->second;
    if (place.quiet != client.quiet.begin()) return remove(client);
    Change(place.client, remove);
  }

  size_t CountOf(const std::string& client) const {
    const auto found = clients_.find(client);
    return found == clients_.end() ? 0 : found->second.connections;
  }
  // The connection of the client that is quiet for the longest time. nullopt: none is quiet.
  std::optional<uint64_t> OldestQuietOf(const std::string& client) const {
    const auto found = clients_.find(client);
    if (found == clients_.end() || found->second.quiet.empty()) return std::nullopt;
    return found->second.quiet.front().id;
  }
  // Returns the connection that makes room for a new connection of the client `newcomer`: of the
  // clients with a quiet connection, chooses the client with the most connections, and its
  // connection that is quiet for the longest time. If clients have the same number of connections,
  // chooses the connection that is quiet for the longest time. If `newcomer` would then have at
  // least as many connections as the chosen client, returns the result of OldestQuietOf(newcomer)
  // instead. nullopt: no connection may be closed.
  std::optional<uint64_t> ToClose(const std::string& newcomer) const {
    if (order_.empty()) return std::nullopt;
    const Client& most = order_.begin()->second->second;
    const size_t own = CountOf(newcomer);
    if (own > 0 && own + 1 >= most.connections) return OldestQuietOf(newcomer);
    return most.quiet.front().id;
  }

 private:
  // The number of connections with its sign changed, and `since` of the first quiet connection.
  using Order = std::pair<int64_t, uint64_t>;

  static Order OrderOf(ClientPosition client) {
    const Client& values = client->second;
    return {-static_cast<int64_t>(values.connections), values.quiet.front().since};
  }
  // `change` may change the place of the client in order_.
  template <typename Function>  // (Client&)
  void Change(ClientPosition client, Function change) {
    if (!client->second.quiet.empty()) order_.erase(OrderOf(client));
    change(client->second);
    if (!client->second.quiet.empty()) order_.emplace(OrderOf(client), client);
  }

  std::map<std::string, Client> clients_;
  std::map<Order, ClientPosition> order_;  // the clients that have a quiet connection
  uint64_t next_since_ = 0;
};

}  // namespace kvcast
