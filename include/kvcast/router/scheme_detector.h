// SchemeDetector: which hash chain a source really uses, found out and verified from its own
// stores.
//
// A router predicts nothing if it hashes a prompt otherwise than the engine does, and nothing shows
// it: every lookup just misses. A dense store carries what decides its hashes (tokens, extra keys,
// parent, the tokens of its lookahead), so that its first block can be hashed again under every
// known scheme. 64 equal bits are no chance: one fit names algorithm, seed and hash unit together.
//
// A fit proves the scheme for the kinds of key of the blocks that fit, and for no other kind:
// releases differ in how extra keys enter (bare, tagged), and a block without keys cannot tell.
//
// A store can be tested if it is of the GPU tier, starts at the root or behind a digest that is
// known whole (bytes on the wire, or a block that was verified before), and its extra keys say
// those of every hash unit. A store with more tokens than its blocks hold (windows, Mamba states)
// is hashed through, its unannounced blocks taken for blocks without keys of their own: that its
// hashes come up in order proves the scheme, that they do not proves nothing. All other stores are
// skipped, counted by reason, and never speak against a scheme.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast {

// Seed texts that are tried besides the configured ones: vLLM's default, and what deployment guides
// set PYTHONHASHSEED to.
inline constexpr std::string_view kWellKnownHashSeeds[] = {kDefaultHashSeed, "0", "42"};

// Bounds.
inline constexpr size_t kMaxSchemeSeeds = 64;        // seeds and raw NONE_HASHes together
inline constexpr int64_t kMaxUnitsPerBlock = 256;    // hash units in a block that is tested
inline constexpr int64_t kMaxFollowedUnits = 16;     // hashed behind the block under test
inline constexpr int64_t kMaxTestedUnits = 1024;     // hashed of one store under one scheme
inline constexpr uint64_t kMaxSpanSearch = 16384;    // hashes of a search over an incomplete span
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
  // Path of each LoRA adapter, by name. Tagged keys hash it and no event carries it: without it the
  // stores of an adapter can only be tested against bare keys.
  std::map<std::string, std::string> lora_paths;
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

// Kinds of key in a block. A scheme is proven for each kind apart.
enum class KeyKind : uint8_t {
  kPlain,       // no extra keys, and no lookahead
  kSalt,        // cache salt
  kLora,        // LoRA adapter
  kImages,      // multimodal items
  kEmbeddings,  // prompt embeddings
  kLookahead,   // the hash covers tokens behind the block
};
inline constexpr size_t kKeyKinds = 6;
// "plain", "salt", "lora", "images", "embeddings", "lookahead".
std::string_view KeyKindName(KeyKind kind);

enum class KeyProof : uint8_t {
  kUnproven,  // no testable store of this kind, or none that could decide
  kProven,    // kPlain and kLookahead: the last store tested fits
  kBare,      // the others: it fits, with bare keys
  kTagged,    // the others: it fits, with tagged keys
  kRefuted,   // the last store tested that could decide fits neither form
};
// "unproven", "proven", "bare", "tagged", "refuted".
std::string_view KeyProofName(KeyProof proof);
inline bool IsProven(KeyProof proof) {
  return proof == KeyProof::kProven || proof == KeyProof::kBare || proof == KeyProof::kTagged;
}

struct KeyKindState {
  KeyProof proof = KeyProof::kUnproven;
  std::string reason;  // one line: why it is not proven; empty: no such store seen, or proven

  friend bool operator==(const KeyKindState&, const KeyKindState&) = default;
};

struct SchemeVerdict {
  SchemeState state = SchemeState::kUnknown;
  // What the stores have, as far as it is known: complete if kMatched; if kMismatch, what was found
  // instead of what was registered.
  std::optional<ChainScheme> scheme;
  std::string reason;  // one line; empty for a match from the start
  // By KeyKind; proofs are of `scheme`. A verdict can be kMatched with a kind refuted.
  std::array<KeyKindState, kKeyKinds> kinds{};
  // L of the last store that fits. Where it changes, kPlain and kLookahead have to be proven again.
  int64_t lookahead = 0;

  const KeyKindState& of(KeyKind kind) const { return kinds[static_cast<size_t>(kind)]; }
  friend bool operator==(const SchemeVerdict&, const SchemeVerdict&) = default;
};

// The form in which a prompt with these inputs is hashed, if the stores have proven the scheme for
// every kind of key it has: with lookahead where the stores have it, and nullopt where a kind is
// not proven or two kinds are proven in different forms. The chain of the prompt is then
// BlockHasher::FromNoneHash(scheme->algorithm, scheme->none_hash) ExtendChain(tokens,
// scheme->hash_block_size, inputs, chain, form).
std::optional<ChainForm> ProvenForm(const SchemeVerdict& verdict, const HashInputs& inputs);
// The kinds of key that stand against ProvenForm, with their reasons, in one line; empty: none.
std::string WhyUnprovenForm(const SchemeVerdict& verdict, const HashInputs& inputs);
// The most likely form, proven or not: the form of the kinds that are proven, else tagged where the
// stores have lookahead, else bare.
ChainForm LikelyForm(const SchemeVerdict& verdict);

// Why a store could not be tested.
enum class SchemeSkip : uint8_t {
  kOtherTier,       // not of the GPU tier
  kNoHashes,        // announces no block
  kNoTokens,        // no token ids
  kTokenPairs,      // several token ids per position
  kBlockSize,       // out of range, or too many hash units in a block
  kSparse,          // its tokens are no whole number of blocks, or of too many hash units
  kUnknownParent,   // behind a block whose digest is not known whole
  kUnresolvedKeys,  // extra keys of the block do not say those of each hash unit, or were not sent
  kLookahead,       // lookahead tokens out of range, or not of every block
};
inline constexpr size_t kSchemeSkips = 9;
std::string_view SchemeSkipName(SchemeSkip reason);

// Blocks under test, by kind of key.
struct KeyKindCounters {
  uint64_t fits = 0;
  uint64_t misses = 0;          // fit neither form, though nothing was left to try
  uint64_t contradictions = 0;  // of a kind that was proven
};

struct SchemeCounters {
  uint64_t stores = 0;        // seen; = testable + all skipped
  uint64_t testable = 0;      // of them
  uint64_t tested = 0;        // of them; = matched + mismatched + inconclusive
  uint64_t matched = 0;       // fit the scheme of the verdict
  uint64_t mismatched = 0;    // fit another one, or none
  uint64_t inconclusive = 0;  // fit none, but have more readings than were tried
  std::array<uint64_t, kSchemeSkips> skipped{};
  // Stores that do not fit a scheme that was proven for their kind of key: the hash and the tokens
  // do not belong together, or the scheme has changed.
  uint64_t contradictions = 0;
  std::array<KeyKindCounters, kKeyKinds> kinds{};
  uint64_t changes = 0;    // of a scheme that had been found
  uint64_t hashes = 0;     // computed; what all this costs
  uint64_t forgotten = 0;  // verified digests that had to make room for later ones
};

// One source's detector. Thread-compatible. Memory: about 150 KiB at most.
//
// Tested are the first testable store of every kind of key and one in sample_period of them, and
// while a kind that was seen is not proven every store of the kind, up to kSchemeMissesToGiveUp
// without a fit.
//
// Cost: a store that is not tested costs no hash. One that fits the scheme found before costs the
// units of its first block + at most kMaxFollowedUnits hashes; more, but kMaxTestedUnits at most,
// where a kind of key that is due first comes up further behind, and where the span is incomplete.
// A block with extra keys costs twice that until the form of the keys is known, and three times
// where several multimodal items share it. Only until the first verdict, after a store that does
// not fit, and for one testable store in sample_period where no scheme is known, is every candidate
// tried: 4 algorithms x seeds x the sum over all hash units of the units in a block (31 for 16
// tokens), twice with extra keys; over an incomplete span kMaxSpanSearch hashes at most.
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
  // The engine began anew: the verdict is open again, and no proof is kept. Counters stay.
  void Restart();

  const SchemeVerdict& verdict() const;
  const SchemeCounters& counters() const;

 private:
  class Impl;
  explicit SchemeDetector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
