// SPDX-License-Identifier: Apache-2.0
#include "src/base/log_limiter.h"

#include <algorithm>
#include <utility>

namespace kvcast {

bool LogLimiter::Take(const LogEvent& event, std::string_view source, int64_t now_ms) {
  const auto [it, begins] = windows_.try_emplace(event.name);
  Window& window = it->second;
  if (begins) window.end_ms = now_ms + kWindowMs;
  auto lines = window.by_source.find(source);
  if (lines == window.by_source.end()) {
    const bool full = window.by_source.size() >= kMaxSources;
    lines = window.by_source.try_emplace(full ? std::string() : std::string(source)).first;
  }
  if (lines->second < event.lines_per_source && window.lines < event.lines) {
    ++lines->second;
    ++window.lines;
    return true;
  }
  if (window.suppressed.lines++ == 0) window.suppressed.source = source;
  return false;
}

std::vector<LogLimiter::Suppressed> LogLimiter::TakeEnded(int64_t now_ms) {
  std::vector<Suppressed> ended;
  for (auto it = windows_.begin(); it != windows_.end();) {
    Window& window = it->second;
    if (now_ms < window.end_ms) {
      ++it;
      continue;
    }
    if (window.suppressed.lines > 0) {
      window.suppressed.event = it->first;
      ended.push_back(std::move(window.suppressed));
    }
    it = windows_.erase(it);
  }
  return ended;
}

int64_t LogLimiter::next_end_ms() const {
  int64_t next = kNever;
  for (const auto& [event, window] : windows_) next = std::min(next, window.end_ms);
  return next;
}

}  // namespace kvcast
