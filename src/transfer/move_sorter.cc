// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "src/transfer/copy_planner.h"

namespace kvcast::transfer {
namespace {

constexpr int kDigitBits = 11;
// For fewer moves, a comparison sort is faster than a radix sort.
constexpr size_t kRadixFrom = 512;

Status InvalidMove(const BlockMove& move, const char* problem) {
  return {StatusCode::kInvalidArgument,
          "block " + std::to_string(move.block.value) + ": " + problem};
}

const char* ProblemOf(const BlockMove& move, const GroupLayout& layout, size_t block_bytes,
                      const HostLayout& host) {
  if (move.block.value >= static_cast<uint64_t>(layout.num_blocks)) return "is not in the pool";
  if (move.offset > block_bytes || move.bytes > block_bytes - move.offset)
    return "is shorter than the move";
  if (move.host_offset > host.bytes || move.bytes > host.bytes - move.host_offset) {
    return "its slot is not in host memory";
  }
  return nullptr;
}

}  // namespace

Status MoveSorter::Prepare(CopyDirection direction, const GroupLayout& layout,
                           const HostLayout& host, std::span<BlockMove> moves) {
  const size_t block_bytes = layout.block_bytes();
  keys_.clear();
  bool sorted = true;
  for (size_t i = 0; i < moves.size(); ++i) {
    const BlockMove& move = moves[i];
    if (const char* problem = ProblemOf(move, layout, block_bytes, host); problem != nullptr) {
      return InvalidMove(move, problem);
    }
    const size_t source = direction == CopyDirection::kLoad
                              ? move.host_offset
                              : move.block.value * block_bytes + move.offset;
    keys_.push_back({source, static_cast<uint32_t>(i)});
    sorted = sorted && (i == 0 || keys_[i - 1].source <= source);
  }
  if (!sorted) Sort(moves);
  return {};
}

// Sorts many moves with a radix sort of their sources, from the lowest digit up, because a job may
// have a hundred thousand moves.
void MoveSorter::Sort(std::span<BlockMove> moves) {
  if (keys_.size() < kRadixFrom) {
    std::sort(keys_.begin(), keys_.end(),
              [](const Key& a, const Key& b) { return a.source < b.source; });
  } else {
    uint64_t used_bits = 0;
    for (const Key& key : keys_) used_bits |= key.source;
    // Sources are multiples of some power of 2. The low bits that are 0 in all sources need no
    // pass.
    const int last = std::bit_width(used_bits);
    for (int bit = std::countr_zero(used_bits); bit < last; bit += kDigitBits) {
      std::array<uint32_t, (1 << kDigitBits) + 1> ends{};
      const auto digit = [bit](const Key& key) {
        return (key.source >> bit) & ((1 << kDigitBits) - 1);
      };
      for (const Key& key : keys_) ++ends[digit(key) + 1];
      for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
      other_keys_.resize(keys_.size());
      for (const Key& key : keys_) other_keys_[ends[digit(key)]++] = key;
      keys_.swap(other_keys_);
    }
  }
  sorted_.clear();
  for (const Key& key : keys_) sorted_.push_back(moves[key.move]);
  std::copy(sorted_.begin(), sorted_.end(), moves.begin());
}

}  // namespace kvcast::transfer
