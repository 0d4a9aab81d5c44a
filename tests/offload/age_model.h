// AgeModel: the age rules of OffloadUse, and the rules of store_threshold from v0.32 on. The model
// keeps plain lists and searches whole lists. Every chunk takes one slot. A chunk is a number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/offload/offload_testing.h"

namespace kvcast::offload {

class AgeModel {
 public:
  // `shared_rank`: the stores of a request have one rank, and a use raises the rank (v0.33).
  // `newest_last`: with ARC, the first chunk of one call of Store becomes the newest chunk. `once`:
  // a request counts once per chunk for `threshold`. `tracked`: maximum number of chunks with a
  // count.
  AgeModel(int64_t slots, EvictionPolicyKind policy, bool shared_rank, bool newest_last,
           int64_t threshold, int64_t tracked, bool once)
      : slots_(slots),
        arc_(policy == EvictionPolicyKind::kArc),
        shared_rank_(shared_rank),
        newest_last_(newest_last),
        threshold_(threshold),
        tracked_(tracked),
        once_(once) {}

  // Returns the stored and the evicted numbers. Returns nullopt if there is no room. Chunk n ends a
  // prefix of End(n) tokens.
  std::optional<std::pair<Numbers, Numbers>> Store(uint64_t request, const Numbers& offer) {
    Count(request, offer);
    Numbers wanted;
    Numbers used;
    for (const int64_t n : offer) {
      const bool readable = Has(n) && chunks_.at(n).readers >= 0;
      const bool passes = threshold_ < 2 || CountOf(n) >= threshold_;
      if (!Has(n) && passes) wanted.push_back(n);
      if (readable || (!Has(n) && passes)) used.push_back(n);
    }
    Request& user = requests_[request];
    if (arc_) {
      for (auto n = wanted.rbegin(); n != wanted.rend(); ++n) {
        if (user.missed.insert(*n).second) MoveTarget(*n);
      }
    }
    for (const int64_t n : used) Use(user, n);
    Numbers evicted;
    const int64_t missing = std::ssize(chunks_) + std::ssize(wanted) - slots_;
    for (int64_t i = 0; i < missing; ++i) {
      const auto victim = Victim(offer, evicted);
      if (!victim) return std::nullopt;
      evicted.push_back(*victim);
    }
    for (const int64_t n : evicted) Remove(n, true);
    Trim();
    for (const int64_t n : wanted) {
      chunks_[n] = {-1, shared_rank_ ? user.rank : ++last_rank_, End(n)};
      user.stored.insert(n);
      Drop(b1_, n);
      Drop(b2_, n);
    }
    if (arc_) InOrder(wanted, [&](int64_t n) { t1_.push_back(n); });
    return std::pair(wanted, evicted);
  }

  void EndStore(const Numbers& numbers, bool success) {
    for (const int64_t n : numbers) {
      if (!Has(n) || chunks_.at(n).readers != -1) continue;
      if (success) {
        chunks_.at(n).readers = 0;
      } else {
        Remove(n, false);
      }
    }
  }

  bool CanLoad(const Numbers& numbers) const {
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](int64_t n) { return Has(n) && chunks_.at(n).readers >= 0; });
  }
  void Load(uint64_t request, const Numbers& numbers) {
    Request& user = requests_[request];
    for (const int64_t n : numbers) {
      ++chunks_.at(n).readers;
      Use(user, n);
    }
  }
  void EndLoad(const Numbers& numbers) {
    for (const int64_t n : numbers) --chunks_.at(n).readers;
  }

  void Finish(uint64_t request) {
    counted_.erase(request);
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    const Request& user = found->second;
    // The longest prefix comes first. The end of a prefix grows with the number of its chunk.
    for (auto n = user.used.rbegin(); n != user.used.rend(); ++n) {
      if (!Has(*n)) continue;
      chunks_.at(*n).rank = ++last_rank_;
      const bool reused = user.reused.count(*n) > 0;
      if (!arc_ || (!reused && user.stored.count(*n) == 0)) continue;
      const bool second = reused || std::count(t2_.begin(), t2_.end(), *n) > 0;
      Drop(t1_, *n);
      Drop(t2_, *n);
      (second ? t2_ : t1_).push_back(*n);
    }
    requests_.erase(found);
  }

  static int64_t End(int64_t number) { return 16 * (number + 1); }
  // LRU: the idle chunks, next victim first. ARC: T1, T2, B1, B2.
  std::vector<Numbers> Lists() const {
    if (arc_) return {t1_, t2_, b1_, b2_};
    Numbers idle;
    for (const auto& [n, chunk] : chunks_) {
      if (chunk.readers == 0) idle.push_back(n);
    }
    std::sort(idle.begin(), idle.end(), [&](int64_t a, int64_t b) { return Older(a, b); });
    return {idle};
  }
  double target() const { return target_; }
  const std::vector<std::pair<int64_t, int64_t>>& counts() const { return counts_; }

 private:
  struct Chunk {
    int64_t readers = 0;  // -1: the store is in flight
    uint64_t rank = 0;
    int64_t end = 0;
  };
  struct Request {
    uint64_t rank = 0;  // 0: none yet
    std::set<int64_t> used, stored, reused, missed;
  };

  bool Has(int64_t n) const { return chunks_.count(n) > 0; }
  void Use(Request& user, int64_t n) {
    const bool readable = Has(n) && chunks_.at(n).readers >= 0;
    if (readable && user.stored.count(n) == 0) user.reused.insert(n);
    if (!user.used.insert(n).second) return;
    if (user.rank == 0) user.rank = ++last_rank_;
    if (!shared_rank_ || !Has(n)) return;
    Chunk& chunk = chunks_.at(n);
    if (std::tuple(chunk.rank, -chunk.end) < std::tuple(user.rank, -End(n))) {
      chunk.rank = user.rank;
      chunk.end = End(n);
    }
  }
  static void Drop(Numbers& list, int64_t n) { std::erase(list, n); }
  template <typename Visit>
  void InOrder(Numbers numbers, const Visit& visit) const {
    if (newest_last_) std::reverse(numbers.begin(), numbers.end());
    for (const int64_t n : numbers) visit(n);
  }
  bool Older(int64_t a, int64_t b) const {
    const Chunk& left = chunks_.at(a);
    const Chunk& right = chunks_.at(b);
    return std::tuple(left.rank, -left.end) < std::tuple(right.rank, -right.end);
  }

  std::optional<int64_t> Victim(const Numbers& spared, const Numbers& chosen) const {
    const auto free = [&](int64_t n) {
      return chunks_.at(n).readers == 0 && std::count(spared.begin(), spared.end(), n) == 0 &&
             std::count(chosen.begin(), chosen.end(), n) == 0;
    };
    if (!arc_) {
      const Numbers idle = Lists()[0];
      const auto found = std::find_if(idle.begin(), idle.end(), free);
      return found == idle.end() ? std::nullopt : std::optional(*found);
    }
    const auto from_t1 = std::count_if(chosen.begin(), chosen.end(), [&](int64_t n) {
      return std::count(t1_.begin(), t1_.end(), n) > 0;
    });
    const bool t1_first = std::ssize(t1_) - from_t1 >= static_cast<int64_t>(std::floor(target_));
    for (const Numbers* list : {t1_first ? &t1_ : &t2_, t1_first ? &t2_ : &t1_}) {
      const auto found = std::find_if(list->begin(), list->end(), free);
      if (found != list->end()) return *found;
    }
    return std::nullopt;
  }
  void Remove(int64_t n, bool remember) {
    const bool second = std::count(t2_.begin(), t2_.end(), n) > 0;
    Drop(t1_, n);
    Drop(t2_, n);
    if (arc_ && remember) (second ? b2_ : b1_).push_back(n);
    chunks_.erase(n);
  }
  void Trim() {
    for (Numbers* ghosts : {&b1_, &b2_}) {
      while (std::ssize(*ghosts) > slots_) ghosts->erase(ghosts->begin());
    }
  }
  void MoveTarget(int64_t n) {
    for (const bool first : {true, false}) {
      Numbers& own = first ? b1_ : b2_;
      const Numbers& other = first ? b2_ : b1_;
      if (std::count(own.begin(), own.end(), n) == 0) continue;
      const double step =
          std::max(1.0, static_cast<double>(other.size()) / static_cast<double>(own.size()));
      target_ = std::clamp(target_ + (first ? step : -step), 0.0, static_cast<double>(slots_));
      Drop(own, n);
      own.push_back(n);
      return;
    }
  }

  int64_t CountOf(int64_t n) const {
    for (const auto& [key, count] : counts_) {
      if (key == n) return count;
    }
    return 0;
  }
  void Count(uint64_t request, const Numbers& offer) {
    if (threshold_ < 2) return;
    Numbers added;
    for (const int64_t n : offer) {
      if (once_ && !counted_[request].insert(n).second) continue;
      const int64_t count = CountOf(n);
      if (count == 0) {
        added.push_back(n);
        continue;
      }
      std::erase_if(counts_, [n](const auto& entry) { return entry.first == n; });
      counts_.emplace_back(n, count + 1);
    }
    for (const int64_t n : added) {
      if (std::ssize(counts_) >= tracked_) {
        const auto gone = std::find_if(counts_.begin(), counts_.end(), [&](const auto& entry) {
          return std::count(offer.begin(), offer.end(), entry.first) == 0;
        });
        if (gone == counts_.end()) continue;
        counts_.erase(gone);
      }
      counts_.emplace_back(n, 1);
    }
  }

  const int64_t slots_;
  const bool arc_, shared_rank_, newest_last_;
  const int64_t threshold_, tracked_;
  const bool once_;
  std::map<int64_t, Chunk> chunks_;
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, std::set<int64_t>> counted_;
  std::vector<std::pair<int64_t, int64_t>> counts_;  // oldest first
  Numbers t1_, t2_, b1_, b2_;                        // oldest first
  double target_ = 0;
  uint64_t last_rank_ = 0;
};

}  // namespace kvcast::offload
