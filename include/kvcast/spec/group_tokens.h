// GroupTokens: one number of tokens per KV-cache group, indexed by group_idx.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace kvcast {

// A vector that allocates nothing for up to kFew groups. Most models have at most kFew groups, and
// one query of the index returns one GroupTokens per worker of a fleet. Thread-compatible.
class GroupTokens {
 public:
  GroupTokens() = default;
  GroupTokens(std::initializer_list<int64_t> tokens) {
    assign(tokens.size(), 0);
    std::copy(tokens.begin(), tokens.end(), begin());
  }

  void assign(size_t groups, int64_t tokens) {
    size_ = groups;
    if (groups > kFew) return many_.assign(groups, tokens);
    std::fill_n(few_.begin(), groups, tokens);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](size_t group) { return begin()[group]; }
  int64_t operator[](size_t group) const { return begin()[group]; }
  int64_t* begin() { return size_ > kFew ? many_.data() : few_.data(); }
  int64_t* end() { return begin() + size_; }
  const int64_t* begin() const { return size_ > kFew ? many_.data() : few_.data(); }
  const int64_t* end() const { return begin() + size_; }

  friend bool operator==(const GroupTokens& a, std::span<const int64_t> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator==(const GroupTokens& a, const GroupTokens& b) {
    return a == std::span<const int64_t>(b.begin(), b.size());
  }

 private:
  static constexpr size_t kFew = 4;

  size_t size_ = 0;
  std::array<int64_t, kFew> few_{};
  std::vector<int64_t> many_;  // used if there are more than kFew groups
};

}  // namespace kvcast
