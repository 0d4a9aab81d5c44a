// StreamCopy: memcpy that bypasses the CPU caches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace kvcast::transfer {

// Copies with non-temporal stores. The old bytes of the destination are not read first, and the
// copy does not evict other data from the caches. Below kStreamCopyFrom bytes memcpy is faster, and
// the function uses memcpy. The stores have no order before StreamFence: call StreamFence before
// you signal that the copy is done.
//
// next_src: the source of the next copy. Its beginning is prefetched while this copy runs. nullptr:
// not known.
using StreamCopyFunction = void (*)(void* dst, const void* src, size_t bytes, const void* next_src);
inline constexpr size_t kStreamCopyFrom = 2048;

struct StreamCopyVariant {
  std::string_view name;  // "avx512", "avx2", "sse2" or "memcpy"
  StreamCopyFunction function = nullptr;
};
// The widest variant that this CPU supports.
StreamCopyVariant WidestStreamCopy();
// Fills `variants` with all variants that this CPU supports, the widest first. Returns their
// number.
size_t StreamCopyVariants(StreamCopyVariant (&variants)[4]);

void StreamFence();

}  // namespace kvcast::transfer
