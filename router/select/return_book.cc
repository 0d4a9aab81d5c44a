// SPDX-License-Identifier: Apache-2.0
#include "router/select/return_book.h"

#include <algorithm>

namespace kvcast {

void ReturnBook::Settle(double now_s) {
  while (!unsettled_.empty() && unsettled_.front().at_s + kSettledSeconds <= now_s) {
    ++of(unsettled_.front().turn).settled;
    unsettled_.pop_front();
  }
}

void ReturnBook::Routed(PrefixName conversation, Turn turn, double now_s) {
  Settle(now_s);
  unsettled_.push_back({turn, now_s});
  unused_.insert_or_assign(conversation, Unused{turn, next_order_});
  by_age_.emplace_back(conversation, next_order_++);
  DropOldest();
}

void ReturnBook::DropOldest() {
  while (unused_.size() > most_ || by_age_.size() > 2 * most_) {
    const auto [conversation, order] = by_age_.front();
    by_age_.pop_front();
    const auto it = unused_.find(conversation);
    if (it != unused_.end() && it->second.order == order) unused_.erase(it);
  }
}

void ReturnBook::Continued(PrefixName conversation) {
  const auto it = unused_.find(conversation);
  if (it == unused_.end()) return;
  ++of(it->second).used;
  unused_.erase(it);
}

void ReturnBook::Shared() {
  for (Counts& counts : counts_) ++counts.used;
}

double ReturnBook::ChanceAtMost(Turn turn, double now_s) {
  Settle(now_s);
  // The rule of three: if none of n tails was used again, the chance is at most 3 / n.
  constexpr double kMore = 3;
  const Counts& counts = of(turn);
  return std::min(1.0, (counts.used + kMore) / std::max(counts.settled, kMore));
}

}  // namespace kvcast
