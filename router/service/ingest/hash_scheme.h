// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::router {

// What two workers must share for one hash chain to serve both, besides the unit.
struct HashScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  EventHashForm form = EventHashForm::kInt64;

  friend auto operator<=>(const HashScheme&, const HashScheme&) = default;
};

}  // namespace kvcast::router
