// SchemeSearch: hashes a stored block under the known schemes and finds the scheme that fits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/scheme_detector.h"
#include "router/names/key_readings.h"

namespace kvcast::router {

// The part of a store that is hashed. Borrows the store.
struct BlockProbe {
  const BlockStored& event;
  size_t index = 0;                // the tested block, counted from the start of the span
  const Digest* parent = nullptr;  // nullptr: at the root
  // The span announces only some of its blocks. All blocks are hashed from the start of the span,
  // and `index` is 0.
  bool incomplete = false;
};

// The digest of a probe and the form of its keys. For an incomplete span, the digest of its last
// announced block.
struct Fit {
  Digest digest;
  ExtraKeyScheme form = ExtraKeyScheme::kBare;
};

// True if the lookahead tokens of the store equal the tokens of its own span, as far as the span
// has them.
bool IsLookaheadConsistent(const BlockStored& event);

// Thread-compatible: one per detector.
class SchemeSearch {
 public:
  static Result<SchemeSearch> Create(const SchemeDetectorConfig& config);

  // Notes the tokens of a store. Searches may hash kSearchShare tokens for each of these tokens,
  // and a burst of kMaxSearchCredit tokens in addition.
  void Earn(size_t tokens) {
    credit_ = std::min(credit_ + kSearchShare * static_cast<int64_t>(tokens), kMaxSearchCredit);
    was_cut_ = false;
  }
  // The form in which keys are tried first.
  void Prefer(ExtraKeyScheme form) { preferred_ = form; }

  // Returns a fit if the hashes of the probe under this scheme equal the hashes of the event.
  std::optional<Fit> TryScheme(const ChainScheme& scheme, const BlockProbe& probe);
  // Returns the first candidate that fits; nullopt: no tried candidate fits. The scheme has no
  // NONE_HASH if the probe is not at the root. Tries nothing if there is no credit. Ends after
  // kMaxSearchTokens tokens.
  struct Found {
    ChainScheme scheme;
    Fit fit;
  };
  std::optional<Found> Find(const BlockProbe& probe);
  // True if the latest Find since Earn did not try all candidates because of a limit of tokens.
  bool was_cut() const { return was_cut_; }

  // False if the registration contradicts the scheme.
  bool IsAsRegistered(const ChainScheme& scheme) const;
  // The registered values as text; empty: none.
  std::string_view registration() const { return registration_; }
  const LoraPaths& lora_paths() const { return lora_paths_; }
  uint64_t hashes() const { return hashes_; }

 private:
  struct Candidate {
    Digest none_hash;
    std::string seed;
  };
  // One algorithm with all its seeds. The registered seed is the first, if there is one.
  struct Family {
    BlockHasher hasher;
    std::vector<Candidate> candidates;
  };

  explicit SchemeSearch(const SchemeDetectorConfig& config);
  Status AddFamily(HashAlgorithm algorithm, const SchemeDetectorConfig& config);
  Family& FamilyOf(HashAlgorithm algorithm) { return families_[static_cast<size_t>(algorithm)]; }
  std::optional<Fit> Hash(BlockHasher& hasher, const Digest& parent, const BlockProbe& probe,
                          int64_t hash_block_size);
  std::optional<Digest> HashInForm(BlockHasher& hasher, const Digest& parent,
                                   const BlockProbe& probe, int64_t hash_block_size,
                                   ExtraKeyScheme form);
  std::optional<Digest> HashSpan(BlockHasher& hasher, const Digest& parent,
                                 const BlockStored& event, int64_t hash_block_size,
                                 ExtraKeyScheme form);
  // Returns the block's digest. The first unit has `keys.first`, the other units have `keys.rest`.
  Digest HashBlock(BlockHasher& hasher, const Digest& parent, const BlockStored& event,
                   size_t index, int64_t hash_block_size, const KeyReading& keys,
                   ExtraKeyScheme form);
  // True if no further candidate may be tried.
  bool IsAtEnd() {
    was_cut_ |= tokens_ >= tokens_end_;
    return was_cut_ || hashes_ >= search_end_;
  }
  std::optional<Found> FindAtAnySize(const BlockProbe& probe);
  std::optional<Found> FindAtHashBlockSize(const BlockProbe& probe, int64_t hash_block_size);

  std::optional<HashAlgorithm> registered_algorithm_;
  int64_t registered_hash_block_size_ = 0;
  bool registered_seed_ = false;
  std::string registration_;
  LoraPaths lora_paths_;
  ExtraKeyScheme preferred_ = ExtraKeyScheme::kBare;
  std::vector<Family> families_;  // by algorithm
  uint64_t hashes_ = 0;
  uint64_t search_end_ = 0;  // no candidate starts at or above this number of hashes
  int64_t tokens_ = 0;       // hashed tokens; 8 bytes of other input count as one token
  int64_t tokens_end_ = 0;   // no candidate starts at or above this number of hashed tokens
  int64_t credit_ = kMaxSearchCredit;  // tokens
  bool was_cut_ = false;
};

}  // namespace kvcast::router
