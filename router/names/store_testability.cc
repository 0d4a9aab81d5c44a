// SPDX-License-Identifier: Apache-2.0
#include "router/names/store_testability.h"

#include "kvcast/core/tier.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::router {
namespace {

// True if the tokens fill whole blocks, more blocks than the store has hashes, and at most
// kMaxTestedUnits blocks.
bool IsWalkable(const BlockStored& event) {
  const auto size = static_cast<size_t>(event.block_size);
  const size_t blocks = event.token_ids->size() / size;
  return event.token_ids->size() % size == 0 && blocks > event.block_hashes.size() &&
         blocks <= static_cast<size_t>(kMaxTestedUnits);
}

bool HasLookaheadOfEveryBlock(const BlockStored& event) {
  if (!event.lookahead) return true;
  const int64_t width = event.lookahead->width;
  return width >= 1 && width <= kMaxHashLookahead &&
         event.lookahead->token_ids.size() ==
             event.block_hashes.size() * static_cast<size_t>(width);
}

}  // namespace

bool NamesEveryBlock(const BlockStored& event) {
  const auto size = static_cast<size_t>(event.block_size);
  return event.token_ids->size() == event.block_hashes.size() * size;
}

std::optional<SchemeSkip> WhyUntestable(const BlockStored& event) {
  if (TierOf(event.medium) != Tier::kGpu) return SchemeSkip::kOtherTier;
  if (event.block_hashes.empty()) return SchemeSkip::kNoHashes;
  if (!event.token_ids || event.token_ids->empty()) return SchemeSkip::kNoTokens;
  if (event.tokens_per_position != 1) return SchemeSkip::kTokenPairs;
  if (event.block_size < 1 || event.block_size > kMaxBlockSize) return SchemeSkip::kBlockSize;
  if (!HasLookaheadOfEveryBlock(event)) return SchemeSkip::kLookahead;
  if (!NamesEveryBlock(event) && !IsWalkable(event)) return SchemeSkip::kSparse;
  return std::nullopt;
}

bool IsReadable(const BlockStored& event, size_t index, int64_t units, const LoraPaths& paths) {
  return !ReadKeys(event, index, units, ExtraKeyScheme::kBare, paths).readings.empty();
}

bool IsReadInFull(const BlockStored& event, size_t index, int64_t units, const LoraPaths& paths) {
  for (const ExtraKeyScheme form : {ExtraKeyScheme::kBare, ExtraKeyScheme::kTagged}) {
    const auto read = ReadKeys(event, index, units, form, paths);
    if (read.readings.empty() || !read.complete) return false;
  }
  return true;
}

bool IsSearchComplete(const BlockStored& event, const LoraPaths& paths) {
  if (event.block_size > kMaxUnitsPerBlock) return false;
  const bool every_unit = event.block_size == 1 || IsReadable(event, 0, 2, paths);
  return every_unit && IsReadInFull(event, 0, 1, paths);
}

std::optional<SchemeSkip> WhyKeysUntestable(const BlockStored& event,
                                            const std::optional<ChainScheme>& scheme,
                                            const LoraPaths& paths) {
  int64_t units = 1;
  // A block that hash_block_size does not divide is tested, because it contradicts that size.
  if (scheme && event.block_size % scheme->hash_block_size == 0) {
    units = event.block_size / scheme->hash_block_size;
  }
  if (units > kMaxUnitsPerBlock) return SchemeSkip::kBlockSize;
  if (NamesEveryBlock(event)) {
    if (!IsReadable(event, 0, units, paths)) return SchemeSkip::kUnresolvedKeys;
    return std::nullopt;
  }
  if (!ReadSpanKeys(event, ExtraKeyScheme::kBare, paths)) return SchemeSkip::kUnresolvedKeys;
  const auto blocks = static_cast<int64_t>(event.token_ids->size()) / event.block_size;
  if (blocks * units > kMaxTestedUnits) return SchemeSkip::kSparse;
  return std::nullopt;
}

}  // namespace kvcast::router
