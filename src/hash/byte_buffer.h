// ByteBuffer: scratch memory for preimages. Clear keeps the memory, so a hasher stops allocating
// after its first blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/check.h"

namespace kvcast::internal {

class ByteBuffer {
 public:
  size_t size() const { return size_; }
  std::span<const uint8_t> bytes() const { return {storage_.data(), size_}; }
  // The same bytes as text. The view borrows the memory, as bytes() does.
  std::string_view view() const { return {reinterpret_cast<const char*>(storage_.data()), size_}; }
  uint8_t* at(size_t position) { return storage_.data() + position; }

  void Clear() { size_ = 0; }
  void Truncate(size_t size) {
    KV_DCHECK(size <= size_);
    size_ = size;
  }

  // The position of the next byte, with memory for at least `count` bytes. SetEnd makes written
  // bytes part of the buffer. The pointer is valid until the next Room or Put.
  uint8_t* Room(size_t count) {
    if (storage_.size() - size_ < count) storage_.resize(std::max(size_ + count, 2 * size_));
    return storage_.data() + size_;
  }
  void SetEnd(const uint8_t* end) { size_ = static_cast<size_t>(end - storage_.data()); }

  void Put(uint8_t byte) {
    *Room(1) = byte;
    ++size_;
  }
  void Put(const void* data, size_t count) {
    uint8_t* end = Room(count);
    if (count > 0) std::memcpy(end, data, count);
    size_ += count;
  }

 private:
  std::vector<uint8_t> storage_;
  size_t size_ = 0;
};

}  // namespace kvcast::internal
