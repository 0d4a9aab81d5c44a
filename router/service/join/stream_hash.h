// StreamHash: the checksum of the bytes of a stream of state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace kvcast::router {

// Thread-compatible.
class StreamHash {
 public:
  using Checksum = std::array<uint64_t, 2>;

  StreamHash() : hash_(XXH3_createState()) { XXH3_128bits_reset(hash_.get()); }
  void Add(std::string_view bytes) { XXH3_128bits_update(hash_.get(), bytes.data(), bytes.size()); }
  // Of all bytes that were added.
  Checksum checksum() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(hash_.get());
    return {hash.high64, hash.low64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* hash) const { XXH3_freeState(hash); }
  };
  const std::unique_ptr<XXH3_state_t, Free> hash_;
};

}  // namespace kvcast::router
