// GroupTokens: one number of tokens per KV-cache group, indexed by group_idx.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>

namespace kvcast {

// An array that allocates nothing for up to kFew groups. Most models have at most kFew groups, and
// one query of the index returns one GroupTokens per worker of a fleet. Thread-compatible.
class GroupTokens {
 public:
  GroupTokens() = default;
  GroupTokens(const GroupTokens& other) : size_(other.size_), few_(other.few_) {
    if (size_ > kFew) CopyMany(other);
  }
  GroupTokens(GroupTokens&& other) noexcept
      : size_(std::exchange(other.size_, 0)), few_(other.few_), many_(std::move(other.many_)) {}
  GroupTokens& operator=(const GroupTokens& other) {
    if (this != &other) *this = GroupTokens(other);
    return *this;
  }
  GroupTokens& operator=(GroupTokens&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    few_ = other.few_;
    many_ = std::move(other.many_);
    return *this;
  }
  ~GroupTokens() = default;
  GroupTokens(std::initializer_list<int64_t> tokens) {
    assign(tokens.size(), 0);
    std::copy(tokens.begin(), tokens.end(), begin());
  }

  void assign(size_t groups, int64_t tokens) {
    many_ = groups > kFew ? std::make_unique<int64_t[]>(groups) : nullptr;
    size_ = groups;
    std::fill_n(begin(), groups, tokens);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](size_t group) { return begin()[group]; }
  int64_t operator[](size_t group) const { return begin()[group]; }
  int64_t* begin() { return size_ > kFew ? many_.get() : few_.data(); }
  int64_t* end() { return begin() + size_; }
  const int64_t* begin() const { return size_ > kFew ? many_.get() : few_.data(); }
  const int64_t* end() const { return begin() + size_; }

  friend bool operator==(const GroupTokens& a, std::span<const int64_t> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator==(const GroupTokens& a, const GroupTokens& b) {
    return a == std::span<const int64_t>(b.begin(), b.size());
  }

 private:
  static constexpr size_t kFew = 4;

  void CopyMany(const GroupTokens& other) {
    many_ = std::make_unique<int64_t[]>(size_);
    std::copy_n(other.many_.get(), size_, many_.get());
  }

  size_t size_ = 0;
  std::array<int64_t, kFew> few_{};
  std::unique_ptr<int64_t[]> many_;  // nullptr for up to kFew groups
};

}  // namespace kvcast
