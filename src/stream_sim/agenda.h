// Agenda: the clock of a simulated world, and its future events in the order of their time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace kvcast::sim {

class Agenda {
 public:
  int64_t now_ms() const { return now_ms_; }
  void At(int64_t ms, std::function<void()> action) {
    events_.push_back({ms < now_ms_ ? now_ms_ : ms, order_++, std::move(action)});
    std::push_heap(events_.begin(), events_.end(), Later);
  }
  // Runs the next event if it is due before `end_ms`. False: no event is due before `end_ms`; the
  // clock is then at `end_ms` or later.
  bool RunNext(int64_t end_ms);

 private:
  struct Event {
    int64_t ms;
    uint64_t order;
    std::function<void()> action;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.ms != b.ms ? a.ms > b.ms : a.order > b.order;
  }
  int64_t now_ms_ = 0;
  uint64_t order_ = 0;
  std::vector<Event> events_;
};

}  // namespace kvcast::sim
