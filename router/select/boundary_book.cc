// SPDX-License-Identifier: Apache-2.0
#include "router/select/boundary_book.h"

#include <algorithm>

namespace kvcast {

size_t BoundaryBook::CountOf(PrefixName name) const {
  const auto it = counts_.find(name);
  return it == counts_.end() ? 0 : it->second;
}

void BoundaryBook::Seen(PrefixName name) {
  const auto [it, added] = counts_.try_emplace(name, uint8_t{0});
  if (added) {
    by_age_.push_back(name);
    if (by_age_.size() > most_) {
      counts_.erase(by_age_.front());
      by_age_.pop_front();
    }
  }
  uint8_t& count = counts_[name];
  if (count + size_t{1} < kLevels) ++reached_[++count];
}

double BoundaryBook::ChanceOfAnother(PrefixName name) const {
  // The current prompt counts too.
  const size_t seen = std::min(CountOf(name) + 1, kLevels - 2);
  return (reached_[seen + 1] + 0.5) / (reached_[seen] + 1);
}

}  // namespace kvcast
