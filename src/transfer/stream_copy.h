// StreamCopy: memcpy past the caches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace kvcast::transfer {

// Copies with non-temporal stores: the destination's old bytes are not read first, and neither side
// pushes anything out of the caches. Worth it from kStreamCopyFrom bytes on; below it is memcpy.
// The stores are ordered against nothing before StreamFence: call it before telling anybody.
//
// next_src: where the next copy will read; its beginning is asked for while this copy runs.
// nullptr: not known.
using StreamCopyFunction = void (*)(void* dst, const void* src, size_t bytes, const void* next_src);
inline constexpr size_t kStreamCopyFrom = 2048;

struct StreamCopyVariant {
  std::string_view name;  // "avx512", "avx2", "sse2" or "memcpy"
  StreamCopyFunction function = nullptr;
};
// The widest that this CPU can do.
StreamCopyVariant WidestStreamCopy();
// All that this CPU can do, the widest first. Returns how many.
size_t StreamCopyVariants(StreamCopyVariant (&variants)[4]);

void StreamFence();

}  // namespace kvcast::transfer
