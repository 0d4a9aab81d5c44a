// FairQueue: a queue of items that belong to keys. The keys take turns, so the items of one key do
// not delay the items of another key.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <unordered_map>
#include <utility>

namespace kvcast {

// Thread-compatible.
template <typename Key, typename Item>
class FairQueue {
 public:
  bool empty() const { return turns_.empty(); }
  void Push(const Key& key, Item item) {
    std::deque<Item>& items = items_[key];
    if (items.empty()) turns_.push_back(key);
    items.push_back(std::move(item));
  }
  // Returns the oldest item of the key whose turn it is. REQUIRES: not empty().
  Item Pop() {
    Key key = std::move(turns_.front());
    turns_.pop_front();
    const auto found = items_.find(key);
    std::deque<Item>& items = found->second;
    Item item = std::move(items.front());
    items.pop_front();
    if (items.empty()) {
      items_.erase(found);
    } else {
      turns_.push_back(std::move(key));
    }
    return item;
  }

 private:
  std::unordered_map<Key, std::deque<Item>> items_;  // by key; no value is empty
  std::deque<Key> turns_;                            // the keys of items_; the next key is first
};

}  // namespace kvcast
