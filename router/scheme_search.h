// SchemeSearch: hashes a stored block under the known schemes and says which one fits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/event.h"
#include "kvcast/scheme_detector.h"
#include "kvcast/status.h"

namespace kvcast::router {

// Block `index` of a dense store. Borrows the store.
struct BlockProbe {
  const BlockStored& event;
  size_t index = 0;
  const Digest* parent = nullptr;  // nullptr: the block is at the root
};

// Thread-compatible: one per detector.
class SchemeSearch {
 public:
  static Result<SchemeSearch> Create(const SchemeDetectorConfig& config);

  // The block's digest if it has the hash of the event under this scheme.
  std::optional<Digest> Fit(const ChainScheme& scheme, const BlockProbe& probe);
  // The first candidate that fits. Without NONE_HASH if the block is not at the root.
  struct Found {
    ChainScheme scheme;
    Digest digest;
  };
  std::optional<Found> Find(const BlockProbe& probe);

  // False if the registration says otherwise.
  bool IsAsRegistered(const ChainScheme& scheme) const;
  // What is registered, in words; empty: nothing.
  std::string_view registration() const { return registration_; }
  uint64_t hashes() const { return hashes_; }

 private:
  struct Candidate {
    Digest none_hash;
    std::string seed;
  };
  // One algorithm with all seeds under it. The registered seed, if there is one, is the first.
  struct Family {
    BlockHasher hasher;
    std::vector<Candidate> candidates;
  };

  explicit SchemeSearch(const SchemeDetectorConfig& config);
  Status AddFamily(HashAlgorithm algorithm, const SchemeDetectorConfig& config);
  Family& FamilyOf(HashAlgorithm algorithm) { return families_[static_cast<size_t>(algorithm)]; }
  std::optional<Digest> Hash(BlockHasher& hasher, const Digest& parent, const BlockProbe& probe,
                             int64_t unit);
  std::optional<Found> FindAtUnit(const BlockProbe& probe, int64_t unit);

  std::optional<HashAlgorithm> registered_algorithm_;
  int64_t registered_unit_ = 0;
  bool registered_seed_ = false;
  std::string registration_;
  std::vector<Family> families_;  // by algorithm
  uint64_t hashes_ = 0;
};

}  // namespace kvcast::router
