// BlockHash: a block hash in the form in which a KV event carries it.
//
// Form on the wire: vLLM sends the last 8 bytes of the digest as an unsigned integer (the default),
// or the whole digest as bytes. Older engines and SGLang may send negative integers. The form is
// part of the value: the integer 5 and the one-byte string "\x05" are different hashes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace kvcast {

// A value type of 40 bytes that owns its data. Byte strings of up to 32 bytes are stored inline,
// longer byte strings on the heap. Thread-compatible.
class BlockHash {
 public:
  enum class Form : uint8_t { kUnsigned, kNegative, kBytes };
  static constexpr size_t kInlineBytes = 32;

  // The unsigned integer 0.
  BlockHash() : BlockHash(uint64_t{0}) {}
  // The unsigned integer `value`. Lists use this constructor to build elements in place; other code
  // should call FromUnsigned.
  explicit BlockHash(uint64_t value) : size_(8) { std::memcpy(inline_, &value, 8); }
  BlockHash(const BlockHash& other) { CopyFrom(other); }
  BlockHash(BlockHash&& other) noexcept { StealFrom(other); }
  BlockHash& operator=(const BlockHash& other) {
    if (this != &other) {
      Release();
      CopyFrom(other);
    }
    return *this;
  }
  BlockHash& operator=(BlockHash&& other) noexcept {
    if (this != &other) {
      Release();
      StealFrom(other);
    }
    return *this;
  }
  ~BlockHash() { Release(); }

  static BlockHash FromUnsigned(uint64_t value) { return BlockHash(value); }
  // Non-negative values become kUnsigned. Equal numbers are therefore equal hashes.
  static BlockHash FromSigned(int64_t value) {
    return BlockHash(value < 0 ? Form::kNegative : Form::kUnsigned, &value, 8);
  }
  // Copies the bytes. The size must be below 2^32.
  static BlockHash FromBytes(std::span<const uint8_t> bytes) {
    return BlockHash(Form::kBytes, bytes.data(), static_cast<uint32_t>(bytes.size()));
  }

  Form form() const { return form_; }
  bool is_bytes() const { return form_ == Form::kBytes; }
  // The integer; for kNegative its two's complement bits. REQUIRES: not is_bytes().
  uint64_t integer() const {
    uint64_t value;
    std::memcpy(&value, inline_, 8);
    return value;
  }
  // The byte string. REQUIRES: is_bytes(). The span is valid until this object changes or is
  // destroyed.
  std::span<const uint8_t> bytes() const { return {data(), size_}; }

  friend bool operator==(const BlockHash& a, const BlockHash& b) {
    return a.form_ == b.form_ && a.size_ == b.size_ &&
           (a.size_ == 0 || std::memcmp(a.data(), b.data(), a.size_) == 0);
  }

 private:
  BlockHash(Form form, const void* data, uint32_t size) : size_(size), form_(form) {
    uint8_t* target = inline_;
    if (size > kInlineBytes) {
      heap_ = new uint8_t[size];
      target = heap_;
    }
    if (size > 0) std::memcpy(target, data, size);
  }
  bool on_heap() const { return size_ > kInlineBytes; }
  const uint8_t* data() const { return on_heap() ? heap_ : inline_; }
  void CopyFrom(const BlockHash& other) {
    size_ = other.size_;
    form_ = other.form_;
    if (on_heap()) {
      heap_ = new uint8_t[size_];
      std::memcpy(heap_, other.heap_, size_);
    } else {
      std::memcpy(inline_, other.inline_, kInlineBytes);
    }
  }
  void StealFrom(BlockHash& other) {
    size_ = other.size_;
    form_ = other.form_;
    std::memcpy(inline_, other.inline_, kInlineBytes);
    other.size_ = 0;
    other.form_ = Form::kBytes;
  }
  void Release() {
    if (on_heap()) delete[] heap_;
  }

  union {
    uint8_t inline_[kInlineBytes] = {};
    uint8_t* heap_;
  };
  uint32_t size_ = 0;
  Form form_ = Form::kUnsigned;
};

}  // namespace kvcast
