// SPDX-License-Identifier: Apache-2.0
#include "router/index/residency_map.h"

namespace kvcast::router {

void ResidencyMap::Publish() {
  unsigned_ints_.Publish();
  negative_ints_.Publish();
  byte_strings_.Publish();
}

void ResidencyMap::Tidy() {
  unsigned_ints_.Tidy();
  negative_ints_.Tidy();
  byte_strings_.Tidy();
}

void ResidencyMap::BeginSweep() {
  unsigned_ints_.BeginSweep();
  negative_ints_.BeginSweep();
  byte_strings_.BeginSweep();
}

bool ResidencyMap::Sweep(size_t runs) {
  return unsigned_ints_.Sweep(runs) || negative_ints_.Sweep(runs) || byte_strings_.Sweep(runs);
}

void ResidencyMap::EndSweep() {
  unsigned_ints_.EndSweep();
  negative_ints_.EndSweep();
  byte_strings_.EndSweep();
}

}  // namespace kvcast::router
