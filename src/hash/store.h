// Unaligned stores in a given byte order. Both serialisations of block hashes define their byte
// order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace kvcast::internal {

template <typename T>
constexpr T ByteSwap(T value) {
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(value));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(value));
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(value));
}

template <typename T>
inline void StoreLittle(uint8_t* at, T value) {
  if constexpr (std::endian::native == std::endian::big) value = ByteSwap(value);
  std::memcpy(at, &value, sizeof(T));
}

template <typename T>
inline void StoreBig(uint8_t* at, T value) {
  if constexpr (std::endian::native == std::endian::little) value = ByteSwap(value);
  std::memcpy(at, &value, sizeof(T));
}

}  // namespace kvcast::internal
