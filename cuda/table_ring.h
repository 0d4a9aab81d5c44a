// TableRing: allocates memory for the tables of kernel launches from a ring buffer. It does not
// reuse the bytes of a table before Release.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvcast::cuda {

class TableRing {
 public:
  explicit TableRing(size_t bytes) : bytes_(bytes) {}

  // Returns the offset in the buffer of `bytes` contiguous bytes; nullopt if not enough bytes are
  // free.
  std::optional<size_t> Take(size_t bytes);
  // The end of the bytes that Take returned last. The position counts the bytes of all rounds of
  // the ring, so it never decreases.
  uint64_t position() const { return head_; }
  // Frees all taken bytes below `position`, a result of position().
  void Release(uint64_t position) {
    if (position > tail_) tail_ = position;
  }

 private:
  const size_t bytes_;
  uint64_t head_ = 0;  // see position()
  uint64_t tail_ = 0;  // the position of the first byte that is not free
};

}  // namespace kvcast::cuda
