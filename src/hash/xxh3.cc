// SPDX-License-Identifier: Apache-2.0
#include "src/hash/xxh3.h"

// XXH3 is inlined, because the call into the shared library is a measurable cost for a block of
// about a hundred bytes.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvcast::internal {

Digest Xxh3(std::span<const uint8_t> bytes) {
  alignas(16) XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  static_assert(sizeof(canonical.digest) == 16);
  Digest digest;
  std::memcpy(digest.data.data(), canonical.digest, sizeof(canonical.digest));
  digest.size = sizeof(canonical.digest);
  return digest;
}

}  // namespace kvcast::internal
