// SPDX-License-Identifier: Apache-2.0
#include "src/wire/writer.h"

namespace kvcast::wire {

void Writer::Unsigned(uint64_t value) {
  if (value < 0x80) {
    out_.push_back(static_cast<uint8_t>(value));
  } else if (value <= UINT8_MAX) {
    Number<1>(0xcc, value);
  } else if (value <= UINT16_MAX) {
    Number<2>(0xcd, value);
  } else if (value <= UINT32_MAX) {
    Number<4>(0xce, value);
  } else {
    Number<8>(0xcf, value);
  }
}

void Writer::Signed(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0) {
    Unsigned(bits);
  } else if (value >= -32) {
    out_.push_back(static_cast<uint8_t>(bits));
  } else if (value >= INT8_MIN) {
    Number<1>(0xd0, bits);
  } else if (value >= INT16_MIN) {
    Number<2>(0xd1, bits);
  } else if (value >= INT32_MIN) {
    Number<4>(0xd2, bits);
  } else {
    Number<8>(0xd3, bits);
  }
}

void Writer::Text(std::string_view text) {
  const size_t size = text.size();
  if (size < 32) {
    out_.push_back(static_cast<uint8_t>(0xa0 | size));
  } else if (size <= UINT8_MAX) {
    Number<1>(0xd9, size);
  } else if (size <= UINT16_MAX) {
    Number<2>(0xda, size);
  } else {
    Number<4>(0xdb, size);
  }
  out_.insert(out_.end(), text.begin(), text.end());
}

void Writer::Binary(std::span<const uint8_t> bytes) {
  const size_t size = bytes.size();
  if (size <= UINT8_MAX) {
    Number<1>(0xc4, size);
  } else if (size <= UINT16_MAX) {
    Number<2>(0xc5, size);
  } else {
    Number<4>(0xc6, size);
  }
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void Writer::ArrayHead(size_t count) {
  if (count < 16) {
    out_.push_back(static_cast<uint8_t>(0x90 | count));
  } else if (count <= UINT16_MAX) {
    Number<2>(0xdc, count);
  } else {
    Number<4>(0xdd, count);
  }
}

void Writer::MapHead(size_t pairs) {
  if (pairs < 16) {
    out_.push_back(static_cast<uint8_t>(0x80 | pairs));
  } else if (pairs <= UINT16_MAX) {
    Number<2>(0xde, pairs);
  } else {
    Number<4>(0xdf, pairs);
  }
}

}  // namespace kvcast::wire
