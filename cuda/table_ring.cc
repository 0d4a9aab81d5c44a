// SPDX-License-Identifier: Apache-2.0
#include "cuda/table_ring.h"

namespace kvcast::cuda {

std::optional<size_t> TableRing::Take(size_t bytes) {
  // An empty ring starts at offset 0.
  if (tail_ == head_) head_ = tail_ = (head_ + bytes_ - 1) / bytes_ * bytes_;
  const size_t to_end = bytes_ - head_ % bytes_;
  const uint64_t begin = bytes <= to_end ? head_ : head_ + to_end;
  if (bytes > bytes_ || begin + bytes > tail_ + bytes_) return std::nullopt;
  head_ = begin + bytes;
  return begin % bytes_;
}

}  // namespace kvcast::cuda
