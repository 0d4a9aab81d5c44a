// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/agenda.h"

namespace kvcast::sim {

bool Agenda::RunNext(int64_t end_ms) {
  if (events_.empty() || events_.front().ms >= end_ms) {
    now_ms_ = std::max(now_ms_, end_ms);
    return false;
  }
  std::pop_heap(events_.begin(), events_.end(), Later);
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ms_ = event.ms;
  event.action();
  return true;
}

}  // namespace kvcast::sim
