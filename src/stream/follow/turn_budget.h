// TurnBudget: limits the bytes and the time of one turn of a source, and computes the pause and the
// slow time that follow a long turn.
//
// One thread works for many sources, one after the other. Here, a turn is the handling of a
// source's messages in one call of SourcePump::Work. A turn ends with the message that reaches a
// bound, so a source can exceed the bounds only by one message. Another thread may handle the large
// messages, and all messages of slow sources (SlowLane). A source is slow after a turn in which one
// message alone took long. It is slow for kSlowFactor times the cost of the turn, but at most for
// kMaxSlowMs. Turns of up to 1.5 s that make a source slow therefore take at most a 200th of the
// first thread's time. After a turn of more than `pause_us`, the source also pauses. Turns of up to
// 50 ms then take at most a twentieth of a thread's time. The pause is not longer than kMaxPauseMs,
// so turns of 300 ms take about a quarter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace kvcast::stream {

struct TurnLimits {
  int messages = 256;  // > 0
  size_t bytes = size_t{1} << 20;
  // A message with more bytes is large; see SourcePump::Work. The cost of a message is not known
  // before the message was handled, but the cost grows at most in proportion to the size.
  size_t large_bytes = size_t{64} << 10;
  int64_t cost_us = 500;
  // After a turn that costs more, the source is slow for kSlowFactor times the cost.
  int64_t slow_us = 2'000;
  // A turn that costs more is long, and is followed by a pause of kPauseFactor times its cost.
  int64_t pause_us = 20'000;
  // Returns the CPU time of the thread. Empty: each turn costs 0.
  std::function<int64_t()> now_us;
};

// How long the next turn of a source may take.
enum class TurnLength : uint8_t {
  kShort,
  kSlow,  // a recent turn took more than TurnLimits::slow_us
  kLong,  // a recent turn took more than TurnLimits::pause_us, or the next message is large
};

// Thread-compatible.
class TurnBudget {
 public:
  static constexpr int64_t kPauseFactor = 19;  // the pause, as a multiple of the cost
  // Shorter than the timeout of a request, because replies also wait during a pause.
  static constexpr int64_t kMaxPauseMs = 1000;
  static constexpr int64_t kSlowFactor = 200;  // the slow time, as a multiple of the cost
  static constexpr int64_t kMaxSlowMs = 300'000;

  explicit TurnBudget(const TurnLimits& limits) : limits_(limits) {}

  void Begin() {
    messages_ = 0;
    bytes_ = 0;
    begin_us_ = Now();
  }
  // Counts one message that was handled. False: the turn must end.
  bool Take(size_t bytes) {
    ++messages_;
    bytes_ += bytes;
    return messages_ < limits_.messages && bytes_ < limits_.bytes && cost_us() < limits_.cost_us;
  }
  // The CPU time since Begin; 0 without TurnLimits::now_us.
  int64_t cost_us() const { return Now() - begin_us_; }
  // The pause after a turn of this cost.
  int64_t PauseMs(int64_t cost_us) const {
    if (!IsLong(cost_us)) return 0;
    return std::min(kPauseFactor * cost_us / 1000, kMaxPauseMs);
  }
  bool IsLong(int64_t cost_us) const { return cost_us > limits_.pause_us; }
  // How long the source is slow after a turn of this cost.
  int64_t SlowMs(int64_t cost_us) const {
    if (cost_us <= limits_.slow_us) return 0;
    return std::min(kSlowFactor * cost_us / 1000, kMaxSlowMs);
  }

 private:
  int64_t Now() const { return limits_.now_us ? limits_.now_us() : 0; }

  const TurnLimits limits_;
  int messages_ = 0;
  size_t bytes_ = 0;
  int64_t begin_us_ = 0;
};

}  // namespace kvcast::stream
