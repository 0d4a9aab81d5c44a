// TableRing: allocates the tables of launches in a ring of memory. The tables of launches in flight
// stay unchanged.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvcast::cuda {

class TableRing {
 public:
  explicit TableRing(size_t bytes) : bytes_(bytes) {}

  // Returns the offset of `bytes` contiguous bytes; nullopt if there is no room.
  std::optional<size_t> Take(size_t bytes);
  // The position after all taken bytes, as a number that only grows.
  uint64_t position() const { return head_; }
  // Frees all bytes that were taken before `position`.
  void Release(uint64_t position) {
    if (position > tail_) tail_ = position;
  }

 private:
  const size_t bytes_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace kvcast::cuda
