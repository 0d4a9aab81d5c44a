// ClientConnections: the open connections of each client, and the connection that is closed to make
// room for a new one. The client with the most connections makes room, so the others keep theirs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace kvcast {

// Thread-compatible. A connection is busy while a request of it waits for its handler, or the
// handler runs. Otherwise it is quiet.
class ClientConnections {
 private:
  struct Entry {
    uint64_t id = 0;     // of the connection
    uint64_t since = 0;  // a smaller number: quiet, or busy, for a longer time
    bool is_busy = false;
  };
  struct Client {
    uint64_t number = 0;     // differs between clients
    std::list<Entry> quiet;  // in the order of `since`
    std::list<Entry> busy;   // in the order of `since`
    size_t connections() const { return quiet.size() + busy.size(); }
  };
  using ClientPosition = std::map<std::string, Client>::iterator;

 public:
  // The place of an open connection.
  struct Place {
    ClientPosition client;
    std::list<Entry>::iterator entry;
  };

  // A connection of `client` was opened. It is quiet.
  Place Open(const std::string& client, uint64_t id) {
    const ClientPosition position = clients_.try_emplace(client).first;
    Client& of = position->second;
    if (of.connections() == 0) of.number = next_number_++;
    Place place{position, {}};
    Change(position, [&] {
      place.entry = of.quiet.insert(of.quiet.end(), {id, next_number_++, false});
    });
    return place;
  }
  // The connection was closed.
  void Close(const Place& place) {
    Client& of = place.client->second;
    Change(place.client, [&] { ListOf(place).erase(place.entry); });
    if (of.connections() == 0) clients_.erase(place.client);
  }
  void SetQuiet(const Place& place) { Move(place, false); }
  void SetBusy(const Place& place) { Move(place, true); }

  // Returns the connection that makes room for a new connection of the client `newcomer`. It
  // belongs to the client with the most connections, or to `newcomer` if no client has more.
  // Among clients with as many connections, the one with the connection that is quiet for the
  // longest time is chosen. A client closes the connection that is quiet for the longest time, or
  // if none is quiet, the first busy connection for which `may_close` is true. If it has none, the
  // client with the next lower number of connections is asked. nullopt: no connection may be
  // closed.
  template <typename MayClose>  // bool (uint64_t id)
  std::optional<uint64_t> ToClose(const std::string& newcomer, MayClose may_close) const {
    const auto own = clients_.find(newcomer);
    for (const auto& [order, client] : order_) {
      const bool own_is_largest =
          own != clients_.end() && own->second.connections() >= client->second.connections();
      const Client& of = own_is_largest ? own->second : client->second;
      if (!of.quiet.empty()) return of.quiet.front().id;
      for (const Entry& entry : of.busy) {
        if (may_close(entry.id)) return entry.id;
      }
      if (own_is_largest) break;
    }
    return std::nullopt;
  }

 private:
  struct Order {
    size_t connections = 0;
    uint64_t quiet_since = 0;  // of the first quiet connection; the largest number: none is quiet
    uint64_t number = 0;       // of the client
    // The client that is asked first is less.
    bool operator<(const Order& other) const {
      if (connections != other.connections) return connections > other.connections;
      if (quiet_since != other.quiet_since) return quiet_since < other.quiet_since;
      return number < other.number;
    }
  };

  static Order OrderOf(const Client& of) {
    constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
    return {of.connections(), of.quiet.empty() ? kNever : of.quiet.front().since, of.number};
  }
  static std::list<Entry>& ListOf(const Place& place) {
    Client& of = place.client->second;
    return place.entry->is_busy ? of.busy : of.quiet;
  }
  void Move(const Place& place, bool busy) {
    std::list<Entry>& from = ListOf(place);
    Change(place.client, [&] {
      place.entry->is_busy = busy;
      place.entry->since = next_number_++;
      std::list<Entry>& to = ListOf(place);
      to.splice(to.end(), from, place.entry);
    });
  }
  // `change` may change the order of the client.
  template <typename Function>  // ()
  void Change(ClientPosition client, Function change) {
    if (client->second.connections() > 0) order_.erase(OrderOf(client->second));
    change();
    if (client->second.connections() > 0) order_.emplace(OrderOf(client->second), client);
  }

  std::map<std::string, Client> clients_;
  std::map<Order, ClientPosition> order_;
  uint64_t next_number_ = 0;
};

}  // namespace kvcast
