// Extra keys of a stored block, taken apart into those of its hash units.
//
// Events give the keys of a whole block of the group, computed anew for the event. The hashes were
// made per hash unit, when the request arrived or grew. Mostly the one says the other; where it
// leaves several possibilities, each is a reading.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcast/event.h"
#include "kvcast/extra_key.h"

namespace kvcast::router {

struct KeyReading {
  ExtraKeys first;  // of the block's first hash unit
  ExtraKeys rest;   // of every other one
  // MultimodalItem::object_tag by position in `first`; empty: all objects of their own.
  std::vector<uint32_t> object_tags;
};

struct KeyReadings {
  std::vector<KeyReading> readings;  // empty: the keys of the units are not known
  bool complete = true;              // no other reading is possible
};

// Of block `index` of the store if it holds `units` hash units. At most 4.
KeyReadings ReadKeys(const BlockStored& event, size_t index, int64_t units);

}  // namespace kvcast::router
