// NewcomerQueue: the work for newcomers, and its order. A newcomer is a connection that has got no
// reply, or only error replies. If many clients connect or send bytes that are no request, the work
// for these clients takes at most a share of the socket thread's time. New requests then wait only
// for a short time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "src/http/newcomer_budget.h"

namespace kvcast {

// Thread-compatible. All times are in microseconds of one monotonic clock.
template <typename Connection>
class NewcomerQueue {
 public:
  // Maximum number of connections that are accepted, and then of requests that are read, in a turn.
  static constexpr int kMostInATurn = 8;
  // If more lingering connections wait, the one that waits for the longest time is closed.
  static constexpr size_t kMostLingering = 256;

  enum class Work : uint8_t {
    kNone,       // there is no work, or no time for it
    kAccept,     // accept up to kMostInATurn connections
    kRequest,    // read bytes of a request: TakeRequest
    kLingering,  // discard bytes after a refusal: TakeLingering
  };

  // True: the acceptor may have new connections.
  void SetToAccept(bool to_accept) { to_accept_ = to_accept; }
  // The connection has bytes of a request. `is_short`: they are so few that they can be a whole
  // request without a body, such as a health check.
  void AddRequest(Connection connection, bool is_short) {
    (is_short ? short_ : long_).push_back(std::move(connection));
  }
  // The connection has bytes after a refusal. Returns a connection that must be closed; nullopt:
  // none.
  std::optional<Connection> AddLingering(Connection connection) {
    lingering_.push_back(std::move(connection));
    if (lingering_.size() <= kMostLingering) return std::nullopt;
    return TakeLingering();
  }

  // True: there is work, perhaps without time for it.
  bool has_work() const { return to_accept_ || has_request() || !lingering_.empty(); }
  // Connections are accepted and requests are read in turns. Bytes after a refusal are discarded if
  // there is no other work, and if newcomers did not need their share of the time before.
  Work Next(int64_t now_us) {
    if (!budget_.HasTime(now_us)) return Work::kNone;
    const bool reads = has_request() && (!to_accept_ || left_in_turn_ > 0);
    if (reads) {
      if (left_in_turn_ > 0) --left_in_turn_;
      return Work::kRequest;
    }
    if (to_accept_) {
      left_in_turn_ = kMostInATurn;
      return Work::kAccept;
    }
    const bool lingers = !lingering_.empty() && budget_.HasSpareTime(now_us);
    return lingers ? Work::kLingering : Work::kNone;
  }
  // Returns a short request if there is one, but at least one of kMostInATurn requests is a long
  // one. Each client can so get an answer, and a flood of long requests does not delay the short
  // ones. REQUIRES: Next has returned kRequest.
  Connection TakeRequest() {
    const bool turn_of_long = ++taken_ % kMostInATurn == 0;
    const bool takes_long = short_.empty() || (turn_of_long && !long_.empty());
    return TakeFirst(takes_long ? long_ : short_);
  }
  // REQUIRES: Next has returned kLingering.
  Connection TakeLingering() { return TakeFirst(lingering_); }
  // Must be called after the work, with the time that the work has used.
  void Spend(int64_t used_us) { budget_.Spend(used_us); }

 private:
  bool has_request() const { return !short_.empty() || !long_.empty(); }
  static Connection TakeFirst(std::deque<Connection>& queue) {
    Connection first = std::move(queue.front());
    queue.pop_front();
    return first;
  }

  NewcomerBudget budget_;
  bool to_accept_ = false;
  int left_in_turn_ = 0;  // requests that are read before connections are accepted
  uint32_t taken_ = 0;    // requests that TakeRequest has returned
  std::deque<Connection> short_;
  std::deque<Connection> long_;
  std::deque<Connection> lingering_;
};

}  // namespace kvcast
