// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::router {

// The properties, besides the hash block size, that two workers must share so that one hash chain
// serves both.
struct HashScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  EventHashForm form = EventHashForm::kInt64;

  friend auto operator<=>(const HashScheme&, const HashScheme&) = default;
};

}  // namespace kvcast::router
