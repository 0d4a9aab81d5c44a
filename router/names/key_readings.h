// Extra keys of a stored block, taken apart into those of its hash units, in the form that is
// hashed.
//
// Events give the keys of a whole block of the group, computed for the event, in the bare form. The
// hashes were made per hash unit, when the request arrived or grew. Mostly the one says the other;
// where it leaves several possibilities, each is a reading.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/extra_key.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/scheme_detector.h"

namespace kvcast::router {

using KeyKindSet = std::bitset<kKeyKinds>;
using LoraPaths = std::map<std::string, std::string>;  // by adapter name

inline KeyKindSet SetOf(KeyKind kind) { return KeyKindSet().set(static_cast<size_t>(kind)); }
// The kinds whose proof names a form: all but kPlain and kLookahead.
inline KeyKindSet KeyedKinds() { return ~(SetOf(KeyKind::kPlain) | SetOf(KeyKind::kLookahead)); }

// The kinds of block `index` of the store: those of its keys, kLookahead with lookahead, kPlain
// with neither.
KeyKindSet KindsOf(const BlockStored& event, size_t index);

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

// Of block `index` of the store if it holds `units` hash units and the keys are hashed in this
// form. At most 3. Tagged keys of an adapter whose path is not told have no reading.
KeyReadings ReadKeys(const BlockStored& event, size_t index, int64_t units, ExtraKeyScheme form,
                     const LoraPaths& paths);

// Of every block of a span that announces some of them: `first` is that of the span's first unit.
// Blocks that are not announced are taken for blocks without keys of their own. nullopt: some block
// has keys that say nothing of the others, or the path is not told.
std::optional<KeyReading> ReadSpanKeys(const BlockStored& event, ExtraKeyScheme form,
                                       const LoraPaths& paths);

// The name of the adapter if its path is needed for tagged keys and is not told.
std::optional<std::string> UntoldAdapter(const BlockStored& event, const LoraPaths& paths);

}  // namespace kvcast::router
