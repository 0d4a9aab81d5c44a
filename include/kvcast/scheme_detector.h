// SchemeDetector: which hash chain a source really uses, found out from its own stores.
//
// A router predicts nothing if it hashes a prompt otherwise than the engine does, and nothing shows
// it: every lookup just misses. A dense store carries what decides its hashes (tokens, extra keys,
// parent), so that its first block can be hashed again under every known scheme. 64 equal bits are
// no chance: one fit names algorithm, seed and hash unit together.
//
// A store can be tested if it is of the GPU tier, has as many tokens as its blocks hold, starts at
// the root or behind a digest that is known whole (bytes on the wire, or a block that was verified
// before), and its extra keys say those of every hash unit. All other stores are skipped, counted
// by reason, and never speak against a scheme.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/event.h"
#include "kvcast/status.h"

namespace kvcast {

// Seed texts that are tried besides the configured ones: vLLM's default, and what deployment guides
// set PYTHONHASHSEED to.
inline constexpr std::string_view kWellKnownHashSeeds[] = {kDefaultHashSeed, "0", "42"};

// Bounds.
inline constexpr size_t kMaxSchemeSeeds = 64;        // seeds and raw NONE_HASHes together
inline constexpr int64_t kMaxUnitsPerBlock = 256;    // hash units in a block that is tested
inline constexpr int64_t kMaxFollowedUnits = 16;     // hashed behind the block under test
inline constexpr size_t kMaxVerifiedDigests = 1024;  // remembered as parents
// Tested stores in a row that no candidate fits, until there is no known scheme: two if nothing was
// left to try (every hash unit, and keys with one reading), else this many.
inline constexpr uint64_t kSchemeMissesToGiveUp = 8;
inline constexpr uint64_t kTokenlessStoresToGiveUp = 16;  // before any with token ids

// What makes a prompt's hash chain, besides the prompt.
struct ChainScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  // Names the seed: its text, or "none_hash:" and the first hex digits of a raw one. Empty as long
  // as only blocks behind the root were seen; so is none_hash.
  std::string seed;
  std::vector<uint8_t> none_hash;
  int64_t hash_block_size = 0;  // tokens per hash

  friend bool operator==(const ChainScheme&, const ChainScheme&) = default;
};
// "sha256_cbor, seed 0, unit 16", for messages.
std::string ToString(const ChainScheme& scheme);

// What the registration says of the source, and what else may be the case.
struct SchemeDetectorConfig {
  // Registered: verified all the same. What is not given is found out.
  std::optional<HashAlgorithm> algorithm;
  std::optional<std::string> seed;
  std::vector<uint8_t> none_hash;  // raw bytes, instead of the seed; empty: not given
  int64_t hash_block_size = 0;     // 0: not given
  // Candidates besides what is registered. All algorithms and hash units are tried with each.
  std::vector<std::string> seeds{std::begin(kWellKnownHashSeeds), std::end(kWellKnownHashSeeds)};
  std::vector<std::vector<uint8_t>> none_hashes;
  // After a verdict, one testable store in so many is tested (at the root and behind it apart).
  uint64_t sample_period = 64;
};

enum class SchemeState : uint8_t {
  kUnknown,    // not enough seen
  kMatched,    // the stores have this scheme, and the registration does not say otherwise
  kTokenMode,  // no known scheme: the chain of a prompt cannot be computed
  kMismatch,   // the stores contradict the registration
};
inline constexpr size_t kSchemeStates = 4;
// "unknown", "matched", "token_mode", "mismatch".
std::string_view SchemeStateName(SchemeState state);

struct SchemeVerdict {
  SchemeState state = SchemeState::kUnknown;
  // What the stores have, as far as it is known: complete if kMatched; if kMismatch, what was found
  // instead of what was registered.
  std::optional<ChainScheme> scheme;
  std::string reason;  // one line; empty for a match from the start

  friend bool operator==(const SchemeVerdict&, const SchemeVerdict&) = default;
};

// Why a store could not be tested.
enum class SchemeSkip : uint8_t {
  kOtherTier,       // not of the GPU tier
  kNoHashes,        // announces no block
  kNoTokens,        // no token ids
  kTokenPairs,      // several token ids per position
  kBlockSize,       // out of range, or too many hash units in a block
  kSparse,          // more tokens than its blocks hold: which blocks they are is not said
  kUnknownParent,   // behind a block whose digest is not known whole
  kUnresolvedKeys,  // extra keys of the block do not say those of each hash unit, or were not sent
};
inline constexpr size_t kSchemeSkips = 8;
std::string_view SchemeSkipName(SchemeSkip reason);

struct SchemeCounters {
  uint64_t stores = 0;        // seen; = testable + all skipped
  uint64_t testable = 0;      // of them
  uint64_t tested = 0;        // of them; = matched + mismatched + inconclusive
  uint64_t matched = 0;       // fit the scheme of the verdict
  uint64_t mismatched = 0;    // fit another one, or none
  uint64_t inconclusive = 0;  // fit none, but have more readings than were tried
  std::array<uint64_t, kSchemeSkips> skipped{};
  uint64_t changes = 0;    // of a scheme that had been found
  uint64_t hashes = 0;     // computed; what all this costs
  uint64_t forgotten = 0;  // verified digests that had to make room for later ones
};

// One source's detector. Thread-compatible. Memory: about 150 KiB at most.
//
// Cost: a store that is not tested costs no hash. One that fits the scheme found before costs the
// units of its first block + at most kMaxFollowedUnits hashes; three times that where several
// multimodal items share a block. Only until the first verdict, after a store that does not fit,
// and for one testable store in sample_period where no scheme is known, is every candidate tried:
// 4 algorithms x seeds x the sum over all hash units of the units in a block (31 for 16 tokens).
//
// A wrong registration is reported with the first testable store at the root, or the first one at
// all if the hashes are bytes and algorithm or unit is wrong; with the eighth if no candidate fits
// and the stores do not carry extra keys. A scheme that changes without a word is found within
// sample_period stores at the root, after AllBlocksCleared with the first.
class SchemeDetector {
 public:
  // Not ok: too many seeds, an empty or too long NONE_HASH, or a hash unit or period out of range.
  static Result<SchemeDetector> Create(const SchemeDetectorConfig& config);
  SchemeDetector(SchemeDetector&&) noexcept;
  SchemeDetector& operator=(SchemeDetector&&) noexcept;
  ~SchemeDetector();

  // Every event of the source, in order. It does not matter whether it has been applied.
  void Observe(const Event& event);
  void Observe(const EventBatch& batch);
  // The engine began anew: the verdict is open again. Counters stay.
  void Restart();

  const SchemeVerdict& verdict() const;
  const SchemeCounters& counters() const;

 private:
  class Impl;
  explicit SchemeDetector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
