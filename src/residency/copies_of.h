// CopiesOf: the number of copies that digests count.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/residency/residency_digest.h"

namespace kvcast::residency {

inline uint64_t CopiesOf(std::span<const GroupTierDigest> totals) {
  uint64_t copies = 0;
  for (const GroupTierDigest& digest : totals) copies += digest.total.copies;
  return copies;
}

}  // namespace kvcast::residency
