// Arguments: token ids, block hashes and payloads, as a Python caller gives them.
//
// A buffer (numpy array, array.array, memoryview, ...) of the right type is read in place. The
// caller must not change the buffer during the call: the GIL is released while C++ works. Buffers
// of other integer types and sequences of Python integers are converted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/ids.h"

namespace kvcast::python {

// A view of the buffer of a Python object. The object cannot be resized while the view exists.
// Create and destroy it with the GIL held.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : view_(other.view_), held_(other.held_) { other.held_ = false; }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (held_) PyBuffer_Release(&view_);
  }
  // False: the object has no buffer. If the object refuses to give its buffer with these flags, the
  // Python error of the object is thrown.
  bool Open(pybind11::handle object, int flags);
  const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_{};
  bool held_ = false;
};

// Token ids. Errors of the constructor: TypeError for a wrong type of object or element;
// InvalidArgumentError for a number of dimensions other than 1, and for an element below 0 or
// above 2^63 - 1. `name` begins the messages.
class TokenArgument {
 public:
  TokenArgument(pybind11::handle object, const std::string& name);
  TokenArgument(TokenArgument&&) = default;
  std::span<const TokenId> tokens() const { return tokens_; }
  std::vector<TokenId> Copy() const { return {tokens_.begin(), tokens_.end()}; }

 private:
  Buffer buffer_;
  std::vector<TokenId> owned_;
  std::span<const TokenId> tokens_;
};

// Block hashes: unsigned 64-bit integers in `integers`, or hashes of any form in `hashes`. At
// least one of these lists is empty. Elements: integers from -2^63 to 2^64 - 1, or bytes of at most
// 256 bytes. A buffer of uint8 with 2 dimensions has one hash of bytes per row. Errors of the
// constructor: TypeError for a wrong type of object or element, and for longer rows of uint8;
// InvalidArgumentError for another number of dimensions, for an integer out of range, and for
// longer bytes. `name` begins the messages.
class HashArgument {
 public:
  HashArgument(pybind11::handle object, const std::string& name);
  HashArgument(HashArgument&&) = default;
  std::span<const uint64_t> integers() const { return integers_; }
  std::vector<BlockHash>& hashes() { return hashes_; }
  // All hashes as BlockHash.
  std::vector<BlockHash> Copy() const;

 private:
  void ReadSequence(pybind11::handle object, const std::string& name);
  Buffer buffer_;
  std::vector<uint64_t> owned_;
  std::span<const uint64_t> integers_;
  std::vector<BlockHash> hashes_;
};

// The bytes of a contiguous buffer. TypeError: the object has no buffer. If the buffer is not
// contiguous, the Python error of the object is thrown.
class PayloadArgument {
 public:
  PayloadArgument(pybind11::handle object, const std::string& name);
  std::span<const uint8_t> bytes() const {
    return {static_cast<const uint8_t*>(buffer_.view().buf),
            static_cast<size_t>(buffer_.view().len)};
  }

 private:
  Buffer buffer_;
};

}  // namespace kvcast::python
