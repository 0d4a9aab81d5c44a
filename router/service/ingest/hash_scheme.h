// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::router {

// Two workers with equal hash schemes and equal hash block sizes can share one hash chain.
struct HashScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  EventHashForm form = EventHashForm::kInt64;

  friend auto operator<=>(const HashScheme&, const HashScheme&) = default;
};

}  // namespace kvcast::router
