// XXH3-128 in its canonical form: 16 bytes, big-endian.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/hash/block_hash.h"

namespace kvcast::internal {

Digest Xxh3(std::span<const uint8_t> bytes);

}  // namespace kvcast::internal
