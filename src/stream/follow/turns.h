// Turns: a few places that many want, given in the order in which they were asked for.
// Not thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace kvcast::stream {

class Turns {
 public:
  // Who asks: any address, not followed.
  using Who = const void*;

  // REQUIRES: places > 0.
  explicit Turns(size_t places) : places_(places) {}

  // REQUIRES: `who` neither has a place nor waits. False: `who` waits until Has.
  bool Take(Who who) {
    waiting_.push_back(who);
    Admit();
    return Has(who);
  }
  bool Has(Who who) const { return std::ranges::find(taken_, who) != taken_.end(); }
  // Gives the place up, or waits no more.
  void Leave(Who who) {
    std::erase(taken_, who);
    std::erase(waiting_, who);
    Admit();
  }

 private:
  void Admit() {
    for (; taken_.size() < places_ && !waiting_.empty(); waiting_.pop_front()) {
      taken_.push_back(waiting_.front());
    }
  }

  const size_t places_;
  std::vector<Who> taken_;
  std::deque<Who> waiting_;
};

}  // namespace kvcast::stream
