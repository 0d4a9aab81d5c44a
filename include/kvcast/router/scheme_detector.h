// SchemeDetector: finds the scheme of the hash chain that a source uses, and verifies it with the
// source's own stores.
//
// If a router hashes a prompt differently from the engine, every lookup misses, without an error. A
// dense store, which names all blocks of its tokens, contains all inputs of its hashes (tokens,
// extra keys, parent, lookahead tokens). The detector hashes the first block of the store under
// every known scheme. A scheme fits if the result is the hash in the store. A chance match of 64
// bits is practically impossible. One fit at the root therefore determines algorithm, seed and
// hash_block_size. A fit after another block does not determine the seed.
//
// A fit proves the scheme only for the kinds of key of the blocks that fit. Releases differ in the
// form in which the hash covers extra keys (bare, tagged), and a block without keys does not show
// this form.
//
// A store is testable if all of these hold:
// - The store is on the GPU tier.
// - The store starts at the root, or after a block whose full digest is known. Such a digest comes
//   as bytes on the wire, or from a block that was verified before.
// - The extra keys of the store determine the keys of every hash unit.
//
// A store may have more tokens than its blocks hold (windows, Mamba states). The detector then
// hashes the whole span, and treats unannounced blocks as blocks without own extra keys. If the
// hashes of the store occur in the same order among the computed hashes, the scheme is proven.
// Otherwise nothing is proven. Stores that are not testable are skipped and counted by reason. They
// are never evidence against a scheme.
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

// Default candidates for the seed text: vLLM's default, and the values of PYTHONHASHSEED in
// deployment guides.
inline constexpr std::string_view kWellKnownHashSeeds[] = {kDefaultHashSeed, "0", "42"};

// The text that may be shown for a seed or for the name of a NONE_HASH: the well-known seed, or
// "configured". Other seeds are secrets: with a seed, a client can compute the hashes of guessed
// prompts, and learn which prompts other clients sent.
constexpr std::string_view ShownHashSeed(std::string_view seed) {
  if (seed.empty()) return seed;
  for (const std::string_view known : kWellKnownHashSeeds) {
    if (seed == known) return known;
  }
  return "configured";
}

// Limits.
inline constexpr size_t kMaxSchemeSeeds = 64;      // seeds plus raw NONE_HASHes
inline constexpr int64_t kMaxUnitsPerBlock = 256;  // hash units per tested block
inline constexpr int64_t kMaxFollowedUnits = 16;   // units that are hashed after the tested block
// Hash units of one store that are hashed under one scheme.
inline constexpr int64_t kMaxTestedUnits = 1024;
// Hashes of one search over an incomplete span.
inline constexpr uint64_t kMaxSpanSearch = 16384;
// Searches hash at most this number of tokens for each token of the source's stores, and
// kMaxSearchCredit tokens in addition. 8 bytes of extra keys count as one token.
inline constexpr int64_t kSearchShare = 8;
inline constexpr int64_t kMaxSearchCredit = int64_t{1} << 22;
inline constexpr int64_t kMaxSearchTokens = int64_t{1} << 22;  // tokens of one search
inline constexpr size_t kMaxVerifiedDigests = 1024;            // kept as parents of later stores
// Number of consecutive tested stores without a fitting candidate after which the detector gives
// up: the state becomes kTokenMode, or kMismatch if a property is registered. A store is conclusive
// if every hash_block_size was tried and the keys have only one reading. Two conclusive stores are
// sufficient. One is sufficient if a property is registered and no scheme was found yet.
inline constexpr uint64_t kSchemeMissesToGiveUp = 8;
// Number of GPU stores without token ids after which the detector gives up, if no GPU store had
// token ids. The state becomes kTokenMode. If a property is registered, only the reason changes.
inline constexpr uint64_t kTokenlessStoresToGiveUp = 16;

// The parameters of a prompt's hash chain that are not part of the prompt.
struct ChainScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  // Name of the seed: its text, or "none_hash:" and the first hex digits of a raw NONE_HASH. `seed`
  // and `none_hash` are empty as long as no store at the root was seen.
  std::string seed;
  std::vector<uint8_t> none_hash;
  int64_t hash_block_size = 0;  // tokens per block hash

  friend bool operator==(const ChainScheme&, const ChainScheme&) = default;
};
// For messages; for example "sha256_cbor, seed 0, unit 16".
std::string ToString(const ChainScheme& scheme);

// The registered properties of a source, and the candidates for the other properties.
struct SchemeDetectorConfig {
  // Registered properties. The detector verifies them too, and searches the properties that are not
  // set.
  std::optional<HashAlgorithm> algorithm;
  std::optional<std::string> seed;
  // Raw bytes of NONE_HASH, instead of the seed. Empty: not set.
  std::vector<uint8_t> none_hash;
  int64_t hash_block_size = 0;  // 0: not set
  // Candidates besides the registered values. All algorithms and hash block sizes are tried with
  // each candidate.
  std::vector<std::string> seeds{std::begin(kWellKnownHashSeeds), std::end(kWellKnownHashSeeds)};
  std::vector<std::vector<uint8_t>> none_hashes;
  // Path of each LoRA adapter, by adapter name. Tagged keys contain the path, and no event carries
  // it. Without the path, the detector can test the stores of an adapter only against bare keys.
  std::map<std::string, std::string> lora_paths;
  // After a verdict, one in sample_period testable stores is tested. Stores at the root and other
  // stores are counted separately.
  uint64_t sample_period = 64;
};

// State of the verdict of a source.
enum class SchemeState : uint8_t {
  kUnknown,  // not enough stores seen
  // The scheme of the stores is known, and does not contradict the registration.
  kMatched,
  // No known scheme fits, or the stores carry no token ids. The hash chain of a prompt cannot be
  // computed.
  kTokenMode,
  kMismatch,  // the stores contradict the registration
};
inline constexpr size_t kSchemeStates = 4;
// "unknown", "matched", "token_mode", "mismatch".
std::string_view SchemeStateName(SchemeState state);

// Kinds of key in a block. A scheme is proven for each kind separately.
enum class KeyKind : uint8_t {
  kPlain,       // no extra keys, no lookahead
  kSalt,        // cache salt
  kLora,        // LoRA adapter
  kImages,      // multimodal items
  kEmbeddings,  // prompt embeddings
  kLookahead,   // the hash covers tokens after the block
};
inline constexpr size_t kKeyKinds = 6;
// "plain", "salt", "lora", "images", "embeddings", "lookahead".
std::string_view KeyKindName(KeyKind kind);

// Evidence for one kind of key.
enum class KeyProof : uint8_t {
  // No testable store of this kind, or no conclusive store.
  kUnproven,
  // kPlain and kLookahead only: the last tested store fits.
  kProven,
  // Other kinds: the last tested store fits with bare keys.
  kBare,
  // Other kinds: the last tested store fits with tagged keys.
  kTagged,
  // The last conclusive store fits no form.
  kRefuted,
};
// "unproven", "proven", "bare", "tagged", "refuted".
std::string_view KeyProofName(KeyProof proof);
inline bool IsProven(KeyProof proof) {
  return proof == KeyProof::kProven || proof == KeyProof::kBare || proof == KeyProof::kTagged;
}

// Evidence for one kind of key, with the reason if it is not proven.
struct KeyKindState {
  KeyProof proof = KeyProof::kUnproven;
  // One line: the reason why the kind is not proven. Empty: proven, or no such store seen.
  std::string reason;

  friend bool operator==(const KeyKindState&, const KeyKindState&) = default;
};

// The verdict of a detector on its source.
struct SchemeVerdict {
  SchemeState state = SchemeState::kUnknown;
  // The scheme of the stores, as far as it is known. It is complete for kMatched. For kMismatch, it
  // is the scheme that was found instead of the registered scheme.
  std::optional<ChainScheme> scheme;
  // One line. Empty if the first verdict was a match and no later store contradicted it.
  std::string reason;
  // By KeyKind. The proofs refer to `scheme`. A verdict may be kMatched although one kind is
  // refuted.
  std::array<KeyKindState, kKeyKinds> kinds{};
  // Lookahead tokens per block of the last store that fits. If this number changes, kPlain and
  // kLookahead must be proven again.
  int64_t lookahead = 0;

  const KeyKindState& of(KeyKind kind) const { return kinds[static_cast<size_t>(kind)]; }
  friend bool operator==(const SchemeVerdict&, const SchemeVerdict&) = default;
};

// Returns the form in which the engine hashes a prompt with these inputs. The form has lookahead if
// the stores have lookahead tokens. nullopt: the scheme is not known, a kind of key of the prompt
// is not proven, or two kinds are proven in different forms. The chain of the prompt is
//
//   BlockHasher::FromNoneHash(scheme->algorithm, scheme->none_hash)
//       ->ExtendChain(tokens, scheme->hash_block_size, inputs, chain, form)
std::optional<ChainForm> ProvenForm(const SchemeVerdict& verdict, const HashInputs& inputs);
// The reason why ProvenForm returns nullopt, in one line: the scheme is not known, or a list of the
// kinds of key that prevent the proof, each with its reason. Empty: ProvenForm returns a form.
std::string WhyUnprovenForm(const SchemeVerdict& verdict, const HashInputs& inputs);
// Returns the most likely form, without proof. It is the form in which more kinds are proven. If
// both forms have equal numbers of kinds, the result is tagged if the stores have lookahead, else
// bare.
ChainForm LikelyForm(const SchemeVerdict& verdict);

// The reason why a store could not be tested.
enum class SchemeSkip : uint8_t {
  kOtherTier,   // not of the GPU tier
  kNoHashes,    // the store names no block
  kNoTokens,    // no token ids
  kTokenPairs,  // several token ids per position
  kBlockSize,   // out of range, or too many hash units in a block
  // The tokens do not fill a whole number of blocks, fill fewer blocks than there are hashes, or
  // fill too many hash units.
  kSparse,
  // The store follows a block whose full digest is not known.
  kUnknownParent,
  // The extra keys of a block do not determine the keys of each hash unit, or were not sent.
  kUnresolvedKeys,
  // Lookahead tokens are out of range, or not present for every block.
  kLookahead,
};
inline constexpr size_t kSchemeSkips = 9;
std::string_view SchemeSkipName(SchemeSkip reason);

// Results of tested blocks, per kind of key.
struct KeyKindCounters {
  uint64_t fits = 0;
  // Blocks that fit no form, although all possibilities were tried.
  uint64_t misses = 0;
  // Blocks that contradict the proof of the kind: they fit no form, or another form than the proven
  // form.
  uint64_t contradictions = 0;
};

// Counters of one detector. They are never reset.
struct SchemeCounters {
  uint64_t stores = 0;    // all observed stores; = testable + sum of skipped
  uint64_t testable = 0;  // stores that can be tested
  // = matched + mismatched + inconclusive
  uint64_t tested = 0;
  uint64_t matched = 0;     // fit the scheme of the verdict
  uint64_t mismatched = 0;  // fit another scheme, or no scheme
  // Stores that fit no scheme, but prove no mismatch: not all readings were tried, or the span is
  // incomplete.
  uint64_t inconclusive = 0;
  std::array<uint64_t, kSchemeSkips> skipped{};
  // Stores that do not fit a scheme that was proven for their kind of key: the hash does not belong
  // to the tokens, or the scheme has changed.
  uint64_t contradictions = 0;
  std::array<KeyKindCounters, kKeyKinds> kinds{};
  uint64_t changes = 0;    // changes of a scheme that was found before
  uint64_t hashes = 0;     // computed hashes; the cost of the detector
  uint64_t forgotten = 0;  // verified digests that were dropped because of the limit
};

// The detector of one source. Thread-compatible. Memory: at most about 150 KiB.
//
// Tested stores: the first testable store of every kind of key, and one in sample_period testable
// stores. If a kind was seen and is not proven, every store of the kind is tested, up to
// kSchemeMissesToGiveUp stores without a fit.
//
// Cost in hashes:
// - 0 for a store that is not tested.
// - For a store that fits the known scheme: the units of its first block, and at most
//   kMaxFollowedUnits more. In two cases the limit is kMaxTestedUnits: a kind of key that must be
//   tested occurs in the store, but not in its first block; or the span is incomplete.
// - A block with extra keys costs twice as much until the form of its keys is known, and three
//   times as much if several multimodal items share the block.
// - All candidates: 4 algorithms x seeds x units. `units` is the sum, over all hash block sizes, of
//   the units in a block: 31 for a block of 16 tokens. Extra keys double the cost. Over an
//   incomplete span the cost is at most kMaxSpanSearch. All candidates are tried only in three
//   cases: before the first verdict; after a store that does not fit; if no scheme is known, for
//   one in sample_period testable stores. All searches together hash at most kSearchShare tokens
//   for each token of the stores, and kMaxSearchCredit tokens in addition. If this limit prevents
//   the search of a store, the store shows no scheme.
//
// Delay of a verdict:
// - The first testable store at the root shows a wrong registration. If the hashes are bytes and
//   the algorithm or the hash_block_size is wrong, the first testable store at any position shows
//   the error.
// - If no candidate fits, the second store gives kTokenMode; with a registration, the first store
//   gives kMismatch. If the events have no field extra_keys, the eighth store gives the verdict in
//   both cases.
// - A changed scheme is found within sample_period stores at the root. After AllBlocksCleared, the
//   first store at the root shows the change.
class SchemeDetector {
 public:
  // Error: kInvalidArgument for too many seeds, an empty or too long NONE_HASH, or a
  // hash_block_size or period out of range.
  static Result<SchemeDetector> Create(const SchemeDetectorConfig& config);
  SchemeDetector(SchemeDetector&&) noexcept;
  SchemeDetector& operator=(SchemeDetector&&) noexcept;
  ~SchemeDetector();

  // The caller must pass every event of the source, in order. Whether the event was applied to an
  // index does not matter.
  void Observe(const Event& event);
  void Observe(const EventBatch& batch);
  // The engine restarted: the verdict becomes kUnknown, and all proofs are dropped. Counters do not
  // change.
  void Restart();

  const SchemeVerdict& verdict() const;
  const SchemeCounters& counters() const;

 private:
  class Impl;
  explicit SchemeDetector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
