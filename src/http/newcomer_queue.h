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
#include <string>
#include <utility>

#include "src/http/fair_queue.h"
#include "src/http/newcomer_budget.h"

namespace kvcast {

// Maximum number of bytes of a short request, and of the first read from a newcomer. A request
// without a body usually fits. Such a request waits only for a short time even if many other
// newcomers send large requests.
inline constexpr size_t kShortRequestBytes = 4 << 10;

// Thread-compatible. All times are in microseconds of one monotonic clock.
template <typename Connection>
class NewcomerQueue {
 public:
  // Maximum number of requests that are read in a turn.
  static constexpr int kMostInATurn = 8;
  // Maximum number of connections that are accepted in a turn. It takes little time to accept a
  // connection, and a health check may wait behind thousands of connections.
  static constexpr int kMostAccepted = 32;
  // Maximum time of a slice. The budget does not count the time of other threads, so it does not
  // bound the time for which other connections wait.
  static constexpr int64_t kSliceUs = 500;
  // If more lingering connections wait, the one that waits for the longest time is closed.
  static constexpr size_t kMostLingering = 256;

  enum class Work : uint8_t {
    kNone,       // there is no work, or no time for it
    kFind,       // find connections that have bytes: AddRequest or AddLingering
    kAccept,     // accept up to kMostAccepted connections
    kRequest,    // read bytes of a request: TakeRequest
    kLingering,  // discard bytes after a refusal: TakeLingering
  };

  // True: connections may have bytes.
  void SetToFind(bool to_find) { to_find_ = to_find; }
  // True: the acceptor may have new connections.
  void SetToAccept(bool to_accept) { to_accept_ = to_accept; }
  // The connection has bytes of a request. `is_short`: they take little time, and can be a whole
  // request without a body, such as a health check. The requests of one client do not delay the
  // requests of another client.
  void AddRequest(Connection connection, const std::string& client, bool is_short) {
    (is_short ? short_ : long_).Push(client, std::move(connection));
  }
  // The connection has bytes after a refusal. Returns a connection that must be closed; nullopt:
  // none.
  std::optional<Connection> AddLingering(Connection connection) {
    lingering_.push_back(std::move(connection));
    if (lingering_.size() <= kMostLingering) return std::nullopt;
    return TakeLingering();
  }

  // True: there is work, perhaps without time for it.
  bool has_work() const { return has_turn() || !lingering_.empty(); }
  // Must be called before Next. After a slice, the other connections must be served.
  void BeginSlice(int64_t now_us) { slice_end_us_ = now_us + kSliceUs; }
  // A turn finds connections that have bytes, accepts connections, and reads up to kMostInATurn
  // requests. A long request ends the turn if no short request waits, because a health check may
  // wait to be accepted. Bytes after a refusal are discarded if there is no other work, and if
  // newcomers did not need their share of the time before.
  Work Next(int64_t now_us) {
    if (now_us >= slice_end_us_ || !budget_.HasTime(now_us)) return Work::kNone;
    while (has_turn()) {
      const Work work = NextInTurn();
      if (work != Work::kNone) return work;
    }
    const bool lingers = !lingering_.empty() && budget_.HasSpareTime(now_us);
    return lingers ? Work::kLingering : Work::kNone;
  }
  // Returns a short request if there is one. Exception: every kMostInATurn-th call returns a long
  // request if there is one. Long requests therefore get answers, and many long requests do not
  // delay the short requests. REQUIRES: Next has returned kRequest.
  Connection TakeRequest() {
    const bool turn_of_long = ++taken_ % kMostInATurn == 0;
    const bool takes_long = short_.empty() || (turn_of_long && !long_.empty());
    return (takes_long ? long_ : short_).Pop();
  }
  // REQUIRES: Next has returned kLingering.
  Connection TakeLingering() {
    Connection first = std::move(lingering_.front());
    lingering_.pop_front();
    return first;
  }
  // Must be called after the work, with the time that the work has used.
  void Spend(int64_t used_us) { budget_.Spend(used_us); }

 private:
  enum class Step : uint8_t { kFind, kAccept, kRequests };

  // The next work of the turn. kNone: a step has ended.
  Work NextInTurn() {
    switch (step_) {
      case Step::kFind:
        step_ = Step::kAccept;
        return to_find_ ? Work::kFind : Work::kNone;
      case Step::kAccept:
        step_ = Step::kRequests;
        left_in_turn_ = kMostInATurn;
        return to_accept_ ? Work::kAccept : Work::kNone;
      case Step::kRequests:
        break;
    }
    if (!has_request() || left_in_turn_ == 0) {
      step_ = Step::kFind;
      return Work::kNone;
    }
    left_in_turn_ = short_.empty() ? 0 : left_in_turn_ - 1;
    return Work::kRequest;
  }
  bool has_turn() const { return to_find_ || to_accept_ || has_request(); }
  bool has_request() const { return !short_.empty() || !long_.empty(); }

  NewcomerBudget budget_;
  int64_t slice_end_us_ = 0;
  bool to_find_ = false;
  bool to_accept_ = false;
  Step step_ = Step::kFind;
  int left_in_turn_ = 0;  // requests that may be read before the turn ends
  uint32_t taken_ = 0;    // requests that TakeRequest has returned
  FairQueue<std::string, Connection> short_;
  FairQueue<std::string, Connection> long_;
  std::deque<Connection> lingering_;
};

}  // namespace kvcast
