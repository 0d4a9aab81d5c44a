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
  // `ranked`: LRU orders chunks by the ranks of requests (v0.33), otherwise by the time of use.
  // `newest_last`: of the chunks of one call, the first becomes the newest. `once`: a request
  // counts once per chunk for `threshold`. `tracked`: maximum number of chunks with a count.
  AgeModel(int64_t slots, EvictionPolicyKind policy, bool ranked, bool newest_last,
           int64_t threshold, int64_t tracked, bool once)
      : slots_(slots),
        arc_(policy == EvictionPolicyKind::kArc),
        ranked_(ranked),
        newest_last_(newest_last),
        threshold_(threshold),
        tracked_(tracked),
        once_(once) {}

  // Returns the stored and the evicted numbers. Returns nullopt if there is no room. Chunk n ends a
  // prefix of End(n) tokens.
  std::optional<std::pair<Numbers, Numbers>> Store(uint64_t request, const Numbers& offer) {
    Count(request, offer);
    Numbers wanted;
    Numbers asked;
    for (const int64_t n : offer) {
      const bool readable = Has(n) && chunks_.at(n).readers >= 0;
      if (threshold_ >= 2 && CountOf(n) < threshold_ && !readable) continue;
      asked.push_back(n);
      if (!Has(n)) wanted.push_back(n);
    }
    Request& user = Of(request);
    if (arc_) {
      for (const int64_t n : wanted) {
        if (user.missed.insert(n).second) Learn(n);
      }
    }
    Numbers evicted;
    const int64_t missing = std::ssize(chunks_) + std::ssize(wanted) - slots_;
    for (int64_t i = 0; i < missing; ++i) {
      const auto victim = Victim(asked, evicted);
      if (!victim) return std::nullopt;
      evicted.push_back(*victim);
    }
    for (const int64_t n : evicted) Remove(n, true);
    Trim();
    for (const int64_t n : wanted) {
      chunks_[n] = {-1, user.rank, 0};
      Drop(b1_, n);
      Drop(b2_, n);
    }
    if (arc_) InOrder(wanted, [&](int64_t n) { t1_.push_back(n); });
    for (const int64_t n : offer) {
      if (!Has(n)) continue;
      const bool stored = std::find(wanted.begin(), wanted.end(), n) != wanted.end();
      if (user.used.insert(n).second) user.uses.push_back(n);
      if (stored) user.stored.insert(n);
    }
    return std::pair(wanted, evicted);
  }

  void EndStore(const Numbers& numbers, bool success) {
    Numbers ended;
    for (const int64_t n : numbers) {
      if (!Has(n) || chunks_.at(n).readers != -1) continue;
      if (success) {
        chunks_.at(n).readers = 0;
        ended.push_back(n);
      } else {
        Remove(n, false);
      }
    }
    InOrder(ended, [&](int64_t n) { Newest(n); });
  }

  bool CanLoad(const Numbers& numbers) const {
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](int64_t n) { return Has(n) && chunks_.at(n).readers >= 0; });
  }
  void Load(uint64_t request, const Numbers& numbers) {
    Request& user = Of(request);
    for (const int64_t n : numbers) {
      ++chunks_.at(n).readers;
      if (user.used.insert(n).second) user.uses.push_back(n);
    }
  }
  void EndLoad(const Numbers& numbers) {
    Numbers ended;
    for (const int64_t n : numbers) {
      if (--chunks_.at(n).readers == 0) ended.push_back(n);
    }
    InOrder(ended, [&](int64_t n) { Newest(n); });
  }

  void Finish(uint64_t request) {
    counted_.erase(request);
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    Numbers uses = found->second.uses;
    std::sort(uses.begin(), uses.end(), std::greater<>());  // longest first: ends grow with numbers
    for (const int64_t n : uses) {
      if (!Has(n)) continue;
      Chunk& chunk = chunks_.at(n);
      if (arc_) {
        const bool again = found->second.stored.count(n) == 0 && chunk.readers >= 0;
        const bool second = again || std::count(t2_.begin(), t2_.end(), n) > 0;
        Drop(t1_, n);
        Drop(t2_, n);
        (second ? t2_ : t1_).push_back(n);
      } else if (ranked_) {
        chunk.rank = ++last_rank_;
      } else if (chunk.readers == 0) {
        Newest(n);
      }
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
    uint64_t newest = 0;  // clock_ at the latest end of a copy, or of a request that used the chunk
  };
  struct Request {
    uint64_t rank = 0;
    Numbers uses;
    std::set<int64_t> used, stored, missed;
  };

  bool Has(int64_t n) const { return chunks_.count(n) > 0; }
  Request& Of(uint64_t request) {
    const auto [found, added] = requests_.try_emplace(request);
    if (added) found->second.rank = ++last_rank_;
    return found->second;
  }
  static void Drop(Numbers& list, int64_t n) { std::erase(list, n); }
  template <typename Visit>
  void InOrder(Numbers numbers, const Visit& visit) const {
    if (newest_last_) std::reverse(numbers.begin(), numbers.end());
    for (const int64_t n : numbers) visit(n);
  }
  void Newest(int64_t n) { chunks_.at(n).newest = ++clock_; }
  bool Older(int64_t a, int64_t b) const {
    const Chunk& left = chunks_.at(a);
    const Chunk& right = chunks_.at(b);
    if (!ranked_) return left.newest < right.newest;
    return std::tuple(left.rank, -End(a)) < std::tuple(right.rank, -End(b));
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
  void Learn(int64_t n) {
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
    for (const int64_t n : offer) {
      if (once_ && !counted_[request].insert(n).second) continue;
      const int64_t count = CountOf(n);
      if (count == 0 && std::ssize(counts_) >= tracked_) {
        const auto gone = std::find_if(counts_.begin(), counts_.end(), [&](const auto& entry) {
          return std::count(offer.begin(), offer.end(), entry.first) == 0;
        });
        if (gone == counts_.end()) continue;
        counts_.erase(gone);
      }
      std::erase_if(counts_, [n](const auto& entry) { return entry.first == n; });
      counts_.emplace_back(n, count + 1);
    }
  }

  const int64_t slots_;
  const bool arc_, ranked_, newest_last_;
  const int64_t threshold_, tracked_;
  const bool once_;
  std::map<int64_t, Chunk> chunks_;
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, std::set<int64_t>> counted_;
  std::vector<std::pair<int64_t, int64_t>> counts_;  // oldest first
  Numbers t1_, t2_, b1_, b2_;                        // oldest first
  double target_ = 0;
  uint64_t last_rank_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace kvcast::offload
