// Decides whether the hash-scheme detector can test a store. The detector can test a store only if
// it can compute the hashes of the store again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvcast/core/event.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/scheme_detector.h"
#include "router/names/key_readings.h"

namespace kvcast::router {

// Returns the reason that excludes a test under any scheme; nullopt: none.
std::optional<SchemeSkip> WhyUntestable(const BlockStored& event);

// The functions below require a store for which WhyUntestable returns nullopt. `paths`: the
// configured paths of the adapters.

// True: the store has one hash for each block of its tokens. False: some blocks have no hash.
bool NamesEveryBlock(const BlockStored& event);
// Returns the reason why the extra keys exclude a test; nullopt: none. `scheme`, if known: the
// scheme of the stores so far.
std::optional<SchemeSkip> WhyKeysUntestable(const BlockStored& event,
                                            const std::optional<ChainScheme>& scheme,
                                            const LoraPaths& paths);
// True if at least one reading of the keys of block `index` is known. `units`: the number of hash
// units in the block.
bool IsReadable(const BlockStored& event, size_t index, int64_t units, const LoraPaths& paths);
// True if all readings of the block's keys are known, in both forms.
bool IsReadInFull(const BlockStored& event, size_t index, int64_t units, const LoraPaths& paths);
// True if the search tries every hash_block_size and every reading of the first block's keys.
bool IsSearchComplete(const BlockStored& event, const LoraPaths& paths);

}  // namespace kvcast::router
