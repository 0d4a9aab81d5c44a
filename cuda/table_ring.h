// TableRing: which part of a ring of memory the next launch's table may take, while those of
// launches under way stay as they are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvcast::cuda {

class TableRing {
 public:
  explicit TableRing(size_t bytes) : bytes_(bytes) {}

  // The offset of so many bytes in a row; nothing if there is no room.
  std::optional<size_t> Take(size_t bytes);
  // Behind all that was taken, as a number that grows.
  uint64_t position() const { return head_; }
  // What was taken before `position` is free.
  void Release(uint64_t position) {
    if (position > tail_) tail_ = position;
  }

 private:
  const size_t bytes_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace kvcast::cuda
