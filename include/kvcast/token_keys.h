// Token mode: exact answers for an engine whose block hashes cannot be recomputed (unknown
// algorithm, random seed).
//
// TokenKeys rewrites one source's events: every engine hash becomes a content key, a 64-bit name of
// the whole prefix that the block ends: its tokens, LoRA name, salt and multimodal items. The same
// prefix has the same key in every group, whatever the block size, so that the one PrefixIndex
// serves engine-hash mode and token mode unchanged; a query brings ContentChain() as its chain.
//
// What an engine hash names is learned from `token_ids` and the parent hash of stores, never
// guessed. A hash whose content is not known yet is held back with its copies and announced when
// another event settles it; until then it is counted by reason and not promised.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/block_hash_value.h"
#include "kvcast/cache_spec.h"
#include "kvcast/event.h"
#include "kvcast/ids.h"

namespace kvcast {

// Which blocks of a window group the engine caches. With it, the positions of a sparse store's
// hashes can often be proved; without it only hashes that other events name are placed.
struct SparseRule {
  EngineRules rules = EngineRules::kMain2026August;
  int64_t alignment = 0;                      // scheduler_block_size, tokens; > 0
  std::optional<int64_t> retention_interval;  // as CacheConfig::retention_interval
};

struct TokenKeysConfig {
  // By group_idx, as registered; only the sparse rule reads more of them than their block sizes.
  std::vector<GroupSpec> groups;
  // Tokens per engine hash; 0: gcd of the block sizes, those of the events included.
  int64_t hash_block_size = 0;
  std::optional<SparseRule> sparse_rule;  // nullopt: not known
  // The parent hash 0 means root unless a block of that hash was stored (LMCache, Mooncake).
  bool zero_parent_is_root = false;
  // A store of a block that the group holds in that tier already is no second copy, and one remove
  // takes it (SGLang's maps, LMCache). vLLM's stores are copies.
  bool repeats_are_refreshes = false;
  // Bounds. Hashes that no tier holds are forgotten first, longest unused first; a hash that finds
  // no room is not promised. The oldest parked stores leave first.
  size_t hashes_max = size_t{1} << 22;
  size_t idle_hashes_max = size_t{1} << 19;  // that no tier holds and no parked store names
  size_t parked_stores_max = size_t{1} << 16;
  size_t parked_tokens_max = size_t{1} << 24;
};

// Why a hash that is held is not promised.
enum class Unresolved : uint8_t {
  kNoTokens,       // only stores without tokens, or whose tokens do not fit their hashes, name it
  kUnknownParent,  // its store follows a block that was never announced
  kSparse,         // its store names fewer hashes than its tokens hold, which block is not known
  kHiddenContent,  // extra keys that cannot be told from tokens: LoRA id without name, embeddings
  kConflict,       // it names two contents, or its content has two hashes
};
inline constexpr int kUnresolvedReasons = 5;
// "no_tokens", "unknown_parent", ...
std::string_view UnresolvedName(Unresolved reason);

struct TokenKeysCounters {
  uint64_t hashes = 0;         // remembered now
  uint64_t resolved = 0;       // hashes that got their content key
  uint64_t resolved_late = 0;  // of them, after their first store
  // (tier, group, hash) entries now, by reason.
  std::array<uint64_t, kUnresolvedReasons> unresolved_held{};
  uint64_t unresolved_gpu = 0;    // of them, on the GPU
  uint64_t parked_stores = 0;     // now
  uint64_t parked_dropped = 0;    // for want of room
  uint64_t forgotten_hashes = 0;  // for want of room
  uint64_t refused_hashes = 0;    // no room: held, not promised
  uint64_t conflicts = 0;         // hashes or contents found to be ambiguous
  uint64_t bad_stores = 0;        // tokens, hashes or sizes that do not fit together
  uint64_t rules_refuted = 0;     // sparse rules that an event contradicted; not used since
  uint64_t unknown_removes = 0;   // removes of a hash that is not held there
};

// One per source. Thread-compatible: one owner thread.
class TokenKeys {
 public:
  explicit TokenKeys(TokenKeysConfig config);
  ~TokenKeys();
  TokenKeys(TokenKeys&&) noexcept;
  TokenKeys& operator=(TokenKeys&&) noexcept;

  // The batch in content keys, without parents and extra keys, to be applied to the index at once.
  // Stores may follow for hashes of earlier batches whose content became known, and removes for
  // hashes that proved ambiguous. Tokens stay only where the index reads their number.
  EventBatch Rekey(const EventBatch& batch);
  // All that is promised now, as stores into an empty index.
  EventBatch Snapshot() const;
  // What the index left out of the batch that Rekey gave last (see PrefixIndex::Apply).
  void NoteLeftOut(std::span<const size_t> positions);

  // The engine began anew: forgets everything. (AllBlocksCleared, which keeps the engine, forgets
  // only what its tier holds.) The counters of things past stay.
  void Restart();

  // Why `hash`, which some tier holds, is not promised; nullopt: it is, or nothing holds it.
  std::optional<Unresolved> WhyUnresolved(const BlockHash& hash) const;
  TokenKeysCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The content keys of a prompt's complete units: key i ends at token (i + 1) * unit. With
// `tokens_per_position` 2 a position is a pair of neighbouring tokens (SGLang under EAGLE) and the
// units count pairs. Cut short where the content cannot be named: prompt embeddings, and
// multimodal items out of order. Keys are the same in one process, not in another.
// REQUIRES: unit > 0, tokens_per_position 1 or 2.
std::vector<BlockHash> ContentChain(std::span<const TokenId> tokens, int64_t unit,
                                    const HashInputs& inputs, int tokens_per_position = 1);

}  // namespace kvcast
