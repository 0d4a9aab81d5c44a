// LiveConnection: the state of a source's live connection.
//
//   kAwaited -> kUp <--> kSilent
//     |         ^ |         |
//     v         | v         |
//   kUnheard ---+ kLost <---+      kLost ---> kUp
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/stream/follow/due.h"

namespace kvcast::stream {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class LiveConnection {
 public:
  enum class State : uint8_t {
    kAwaited,  // no connection was established yet
    kUnheard,  // no connection was established within the allowed time
    kUp,       // established, and the latest message or connection is recent
    kSilent,   // established, and no message arrived for `stale_ms`
    kLost,     // a connection was established, and it was lost
  };

  State state() const { return state_; }
  bool up() const { return state_ == State::kUp || state_ == State::kSilent; }
  bool was_up() const { return up() || state_ == State::kLost; }
  int64_t silent_at_ms(int64_t stale_ms) const { return heard_ms_ + stale_ms; }
  // The time from which the state is kUnheard. kNever before the first CheckUnheard, and in every
  // state except kAwaited.
  int64_t unheard_at_ms() const {
    return state_ == State::kAwaited ? unheard_due_ms_.value_or(kNever) : kNever;
  }

  // True: a connection was established before this one.
  bool Establish(int64_t now_ms) {
    const bool again = was_up();
    state_ = State::kUp;
    heard_ms_ = now_ms;
    return again;
  }
  void Lose() {
    if (up()) state_ = State::kLost;
  }
  // A live message or a reply arrived.
  void NoteMessage(int64_t now_ms) {
    heard_ms_ = now_ms;
    if (state_ == State::kSilent) state_ = State::kUp;
  }
  void CheckSilence(int64_t now_ms, int64_t stale_ms) {
    if (state_ == State::kUp && now_ms >= silent_at_ms(stale_ms)) state_ = State::kSilent;
  }
  // The first call starts the time `allowed_ms`.
  void CheckUnheard(int64_t now_ms, int64_t allowed_ms) {
    if (!unheard_due_ms_) unheard_due_ms_ = now_ms + allowed_ms;
    if (now_ms >= unheard_at_ms()) state_ = State::kUnheard;
  }

 private:
  State state_ = State::kAwaited;
  int64_t heard_ms_ = 0;  // when the latest message or connection arrived
  std::optional<int64_t> unheard_due_ms_;
};

}  // namespace kvcast::stream
