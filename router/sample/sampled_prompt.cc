// SPDX-License-Identifier: Apache-2.0
#include "router/sample/sampled_prompt.h"

#include <algorithm>
#include <utility>

namespace kvcast::router {
namespace {

// During decode, blocks arrive one by one. Without spare capacity, each block would copy the
// prompt.
template <typename T>
void ReserveFor(size_t size, std::vector<T>& list) {
  if (size > list.capacity()) list.reserve(std::max(size, list.size() + list.size() / 8));
}

size_t WordsFor(size_t units) { return (units + 63) / 64; }

}  // namespace

SampledPrompt::Agreement SampledPrompt::Compare(size_t before,
                                                std::span<const ContentKey> path) const {
  Agreement agreement;
  const size_t common = std::min(path.size(), keys_.size() - before);
  for (size_t i = 0; i < common; ++i) {
    if (path[i] == keys_[before + i]) {
      if (path[i] != kUnnamed) agreement.units = i + 1;
    } else if (path[i] != kUnnamed && keys_[before + i] != kUnnamed) {
      agreement.differs = true;
      break;
    }
  }
  return agreement;
}

bool SampledPrompt::Extend(size_t before, std::span<const ContentKey> path) {
  bool learned = false;
  const size_t common = std::min(path.size(), keys_.size() - before);
  for (size_t i = 0; i < common; ++i) {
    if (keys_[before + i] != kUnnamed || path[i] == kUnnamed) continue;
    keys_[before + i] = path[i];
    learned = true;
  }
  if (common == path.size()) return learned;
  const size_t end = keys_.size() + path.size() - common;
  ReserveFor(end, keys_);
  keys_.insert(keys_.end(), path.begin() + static_cast<ptrdiff_t>(common), path.end());
  ReserveFor(WordsFor(end) * groups_, stored_);
  stored_.resize(WordsFor(end) * groups_);
  return true;
}

SampledPrompt SampledPrompt::Branch(size_t units) const {
  SampledPrompt branch;
  branch.keys_.assign(keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(units));
  branch.groups_ = groups_;
  const size_t words = WordsFor(units) * groups_;
  branch.stored_.assign(stored_.begin(), stored_.begin() + static_cast<ptrdiff_t>(words));
  if (units % 64 != 0) {
    const uint64_t within = (uint64_t{1} << units % 64) - 1;
    for (size_t group = 0; group < groups_; ++group) {
      branch.stored_[words - groups_ + group] &= within;
    }
  }
  branch.SetStart(tokens_, scope_);
  return branch;
}

bool SampledPrompt::NoteStored(size_t unit, uint8_t group) {
  if (group >= groups_) SetGroups(group + size_t{1});
  uint64_t& word = stored_[unit / 64 * groups_ + group];
  const uint64_t bit = uint64_t{1} << unit % 64;
  const bool known = (word & bit) != 0;
  word |= bit;
  return known;
}

void SampledPrompt::SetGroups(size_t groups) {
  const size_t words = WordsFor(keys_.size());
  std::vector<uint64_t> stored;
  ReserveFor(WordsFor(keys_.capacity()) * groups, stored);
  stored.resize(words * groups);
  for (size_t word = 0; word < words; ++word) {
    for (size_t group = 0; group < groups_; ++group) {
      stored[word * groups + group] = stored_[word * groups_ + group];
    }
  }
  stored_ = std::move(stored);
  groups_ = groups;
}

}  // namespace kvcast::router
