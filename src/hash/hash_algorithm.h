// An algorithm consists of a serialisation and a digest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/hash/block_hash.h"
#include "src/hash/preimage.h"

namespace kvcast::internal {

inline Serialisation SerialisationOf(HashAlgorithm algorithm) {
  const bool cbor =
      algorithm == HashAlgorithm::kSha256Cbor || algorithm == HashAlgorithm::kXxhashCbor;
  return cbor ? Serialisation::kCbor : Serialisation::kPickle;
}

inline bool UsesSha256(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kSha256 || algorithm == HashAlgorithm::kSha256Cbor;
}

}  // namespace kvcast::internal
