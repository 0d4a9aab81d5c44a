// Key readings: split the extra keys of a stored block into the keys of its hash units, in the form
// that is hashed (ExtraKeyScheme).
//
// An event has the keys of a whole block of the group, computed for the event, in the bare form.
// The engine made the hashes per hash unit, when the request arrived or grew. Usually the keys of
// the block determine the keys of its units. If several results are possible, each is a reading.
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

// A block with more extra keys than this number is not tested. A key of a real block belongs to at
// least one of its tokens.
inline constexpr size_t kMaxTestedKeys = 64;

inline KeyKindSet SetOf(KeyKind kind) { return KeyKindSet().set(static_cast<size_t>(kind)); }
// The kinds whose proof has a form: all except kPlain and kLookahead.
inline KeyKindSet KeyedKinds() { return ~(SetOf(KeyKind::kPlain) | SetOf(KeyKind::kLookahead)); }

// The kinds of block `index` of the store: the kinds of its keys; kLookahead if it has lookahead;
// kPlain if it has neither.
KeyKindSet KindsOf(const BlockStored& event, size_t index);

struct KeyReading {
  ExtraKeys first;  // keys of the block's first hash unit
  ExtraKeys rest;   // keys of every other unit
  // MultimodalItem::object_tag by position in `first`. Empty: each object has a tag of its own.
  std::vector<uint32_t> object_tags;
};

struct KeyReadings {
  std::vector<KeyReading> readings;  // empty: the keys of the units are unknown
  bool complete = true;              // no other reading is possible
};

// Returns at most 3 readings of block `index` of the store. The block holds `units` hash units, and
// its keys are hashed in this form. A block of more than kMaxTestedKeys keys has no reading. Tagged
// keys of an adapter have no reading if the path of the adapter is not configured.
KeyReadings ReadKeys(const BlockStored& event, size_t index, int64_t units, ExtraKeyScheme form,
                     const LoraPaths& paths);

// Returns the reading that all blocks of the store's span share. The store may announce only some
// of these blocks; the other blocks are assumed to have no keys of their own. `first` holds the
// keys of the span's first unit. nullopt: the keys of some block do not determine the keys of the
// other blocks, or the path of the adapter is not configured.
std::optional<KeyReading> ReadSpanKeys(const BlockStored& event, ExtraKeyScheme form,
                                       const LoraPaths& paths);

// Returns the name of the adapter if tagged keys need its path and the path is not configured.
std::optional<std::string> AdapterWithoutPath(const BlockStored& event, const LoraPaths& paths);

}  // namespace kvcast::router
