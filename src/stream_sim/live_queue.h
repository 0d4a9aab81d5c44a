// LiveQueue: the events and messages that a simulated live socket has received, and that its reader
// has not read yet.
//
// An arrival is a received event or message. Arrivals become visible in their order. An arrival may
// become visible during any call, because the network thread and the reader run at the same time.
// Like a ZeroMQ descriptor, the queue announces an arrival once, and the next call clears the
// announcement.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "src/stream/follow/source_transport.h"
#include "src/stream/publish/replay_ring.h"
#include "src/stream_sim/random.h"

namespace kvcast::sim {

class LiveQueue {
 public:
  explicit LiveQueue(Random& random) : random_(random) {}

  void Push(stream::LiveEvent event) { hidden_.emplace_back(event); }
  void Push(stream::RingEntry message) { hidden_.emplace_back(std::move(message)); }
  void Clear() {
    hidden_.clear();
    events_ = {};
    messages_ = {};
  }

  std::optional<stream::LiveEvent> NextEvent() { return Next(events_); }
  std::optional<stream::RingEntry> NextMessage() { return Next(messages_); }

  // True: an arrival is not visible yet, or was announced since the latest call.
  bool announces() const { return !hidden_.empty() || events_.announced || messages_.announced; }
  // True: a visible item is unread, and no announcement is pending for it.
  bool has_unannounced() const { return events_.has_unannounced() || messages_.has_unannounced(); }

 private:
  template <typename Item>
  struct Visible {
    std::deque<Item> items;
    bool announced = false;  // an item became visible since the latest call
    bool has_unannounced() const { return !items.empty() && !announced; }
  };

  template <typename Item>
  std::optional<Item> Next(Visible<Item>& visible) {
    while (!hidden_.empty() && random_.Percent(70)) Show();
    visible.announced = false;
    if (visible.items.empty()) return std::nullopt;
    Item item = std::move(visible.items.front());
    visible.items.pop_front();
    return item;
  }
  void Show() {
    if (auto* event = std::get_if<stream::LiveEvent>(&hidden_.front())) {
      events_.items.push_back(*event);
      events_.announced = true;
    } else {
      messages_.items.push_back(std::move(std::get<stream::RingEntry>(hidden_.front())));
      messages_.announced = true;
    }
    hidden_.pop_front();
  }

  Random& random_;
  std::deque<std::variant<stream::LiveEvent, stream::RingEntry>> hidden_;
  Visible<stream::LiveEvent> events_;
  Visible<stream::RingEntry> messages_;
};

}  // namespace kvcast::sim
