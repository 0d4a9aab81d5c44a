// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::router {

// The hash algorithm of an engine, its NONE_HASH, and the form of its hashes in events. Two engines
// have equal hashes of a prompt if these values, the hash block size, the ChainForm and the path of
// the LoRA adapter are equal; see QueryEngine::ChainKey.
struct HashScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  EventHashForm form = EventHashForm::kInt64;

  friend auto operator<=>(const HashScheme&, const HashScheme&) = default;
};

}  // namespace kvcast::router
