// The detector tests a scheme with testable stores. A store that is not testable never contradicts
// the scheme.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvcast/router/scheme_detector.h"
#include "tests/router/names/scheme_streams.h"

namespace kvcast {
namespace {

using testing::DenseStore;
using testing::EngineScheme;
using testing::SchemeTokens;

const EngineScheme kPickle{};
const EngineScheme kFine{.hash_block_size = 8};

// Returns a detector that has matched `scheme` and tests every testable store.
SchemeDetector Matched(const EngineScheme& scheme) {
  SchemeDetectorConfig config;
  config.sample_period = 1;
  SchemeDetector detector = SchemeDetector::Create(config).value();
  detector.Observe(testing::RootStore(scheme, 1));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  return detector;
}

// The outcome of one more store, read from the counters of the detector.
enum class Outcome { kMatched, kMismatched, kInconclusive, kSkipped };
Outcome OutcomeOf(SchemeDetector& detector, const BlockStored& store) {
  const SchemeCounters before = detector.counters();
  detector.Observe(Event(store));
  const SchemeCounters& after = detector.counters();
  EXPECT_EQ(after.stores, before.stores + 1);
  if (after.testable == before.testable) return Outcome::kSkipped;
  EXPECT_EQ(after.tested, before.tested + 1);
  if (after.matched > before.matched) return Outcome::kMatched;
  return after.mismatched > before.mismatched ? Outcome::kMismatched : Outcome::kInconclusive;
}

void ExpectSkipped(const BlockStored& store, SchemeSkip reason) {
  SchemeDetector detector = Matched(kPickle);
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kSkipped) << SchemeSkipName(reason);
  EXPECT_EQ(detector.counters().skipped[static_cast<size_t>(reason)], 1u) << SchemeSkipName(reason);
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
}

// Returns a store with another seed. If the detector tests this store, the outcome is a mismatch.
BlockStored Foreign() { return DenseStore({.seed = "nobody knows"}, SchemeTokens(64, 1), 0, 4); }

TEST(SchemeStores, OtherTiersAnnounceChunksOfTheirOwn) {
  BlockStored store = Foreign();
  store.medium = "CPU";
  ExpectSkipped(store, SchemeSkip::kOtherTier);
}

TEST(SchemeStores, HashesAndTokensAreRequiredAndTokenPairsAreNotTested) {
  BlockStored hashless = Foreign();
  hashless.block_hashes.clear();
  ExpectSkipped(hashless, SchemeSkip::kNoHashes);
  BlockStored tokenless = Foreign();
  tokenless.token_ids.reset();
  ExpectSkipped(tokenless, SchemeSkip::kNoTokens);
  BlockStored pairs = Foreign();
  pairs.tokens_per_position = 2;
  ExpectSkipped(pairs, SchemeSkip::kTokenPairs);
}

TEST(SchemeStores, BlockSizesOutOfRange) {
  for (const int64_t size : {int64_t{0}, int64_t{1} << 40}) {
    BlockStored store = Foreign();
    store.block_size = size;
    ExpectSkipped(store, SchemeSkip::kBlockSize);
  }
}

TEST(SchemeStores, SpansThatAreNotAWholeNumberOfBlocks) {
  BlockStored store = Foreign();
  store.token_ids->pop_back();
  ExpectSkipped(store, SchemeSkip::kSparse);
  store = Foreign();
  store.token_ids->resize(16);
  ExpectSkipped(store, SchemeSkip::kSparse);
}

TEST(SchemeStores, LookaheadThatDoesNotFitTheBlocks) {
  BlockStored store = Foreign();
  store.lookahead = LookaheadTokens{1, {1, 2, 3}};
  ExpectSkipped(store, SchemeSkip::kLookahead);
  store.lookahead =
      LookaheadTokens{kMaxHashLookahead + 1, std::vector<TokenId>(4 * (kMaxHashLookahead + 1))};
  ExpectSkipped(store, SchemeSkip::kLookahead);
  store.lookahead = LookaheadTokens{0, {}};
  ExpectSkipped(store, SchemeSkip::kLookahead);
}

TEST(SchemeStores, AStoreBehindAnUnknownBlockIsSkipped) {
  ExpectSkipped(DenseStore({.seed = "nobody knows"}, SchemeTokens(64, 1), 2, 4),
                SchemeSkip::kUnknownParent);
}

TEST(SchemeStores, SpansWithAnOffsetAreNotAtTheRoot) {
  BlockStored store = Foreign();
  store.token_offset = 64;
  ExpectSkipped(store, SchemeSkip::kUnknownParent);
  store.token_offset = 0;
  SchemeDetector detector = Matched(kPickle);
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kMismatched);
}

TEST(SchemeStores, TooManyUnitsInABlock) {
  const EngineScheme fine{.hash_block_size = 1};
  SchemeDetector detector = Matched(fine);
  const auto tokens = SchemeTokens(2 * kMaxUnitsPerBlock, 1);
  EXPECT_EQ(OutcomeOf(detector, DenseStore(fine, tokens, 0, 1, kMaxUnitsPerBlock)),
            Outcome::kMatched);
  EXPECT_EQ(OutcomeOf(detector, DenseStore(fine, tokens, 0, 1, 2 * kMaxUnitsPerBlock)),
            Outcome::kSkipped);
}

// A block of 512 tokens has 512 units if hash_block_size is 1. This is more than kMaxUnitsPerBlock,
// so the detector does not try hash_block_size 1. A scheme with this size might fit, so a miss is
// no proof.
TEST(SchemeStores, BlocksWithUnitsThatWereNotTriedProveNothing) {
  SchemeDetector detector = Matched(kPickle);
  const EngineScheme foreign{.seed = "nobody knows", .hash_block_size = 512};
  EXPECT_EQ(OutcomeOf(detector, testing::RootStore(foreign, 2)), Outcome::kInconclusive);
}

// Old event layouts have no extra_keys. A match is then a proof, but a mismatch may come from a
// salt that was not sent.
TEST(SchemeStores, KeysThatWereNotSentProveNothing) {
  HashInputs inputs;
  inputs.lora_name = "adapter";
  SchemeDetector detector = Matched(kPickle);
  BlockStored store = DenseStore(kPickle, SchemeTokens(64, 1), 0, 4, 16, inputs);
  store.extra_keys.reset();
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kMatched);
  store.lora_name.reset();
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kSkipped);
  inputs = {};
  inputs.cache_salt = "tenant";
  store = DenseStore(kPickle, SchemeTokens(64, 1), 0, 4, 16, inputs);
  store.extra_keys.reset();
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kInconclusive);
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
}

TEST(SchemeStores, OldLayoutsGoToTokenModeAfterEightMisses) {
  SchemeDetector detector = SchemeDetector::Create({}).value();
  for (int64_t n = 1; n <= 8; ++n) {
    EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
    BlockStored store = testing::RootStore({.seed = "random"}, n);
    store.extra_keys.reset();
    detector.Observe(Event(store));
  }
  EXPECT_EQ(detector.verdict().state, SchemeState::kTokenMode);
}

TEST(SchemeStores, AStreamWithoutTokenIdsCannotBeVerified) {
  BlockStored store = Foreign();
  store.token_ids.reset();
  SchemeDetectorConfig registered;
  registered.algorithm = HashAlgorithm::kSha256;
  SchemeDetector unnamed = SchemeDetector::Create({}).value();
  SchemeDetector named = SchemeDetector::Create(registered).value();
  for (uint64_t i = 0; i < kTokenlessStoresToGiveUp; ++i) {
    EXPECT_EQ(unnamed.verdict().state, SchemeState::kUnknown);
    unnamed.Observe(Event(store));
    named.Observe(Event(store));
  }
  EXPECT_EQ(unnamed.verdict().state, SchemeState::kTokenMode);
  EXPECT_EQ(named.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(unnamed.verdict().reason, "stores carry no token ids");
  EXPECT_EQ(named.verdict().reason, "stores carry no token ids");
  unnamed.Observe(testing::RootStore(kPickle, 1));
  EXPECT_EQ(unnamed.verdict().state, SchemeState::kMatched);
}

// The router joined late, so the block before the first store is not known. The engine sends token
// ids, although a connector's placeholders have none.
TEST(SchemeStores, PlaceholdersDoNotHideThatOtherStoresCarryTokenIds) {
  SchemeDetector detector = SchemeDetector::Create({}).value();
  EXPECT_EQ(OutcomeOf(detector, DenseStore(kPickle, SchemeTokens(64, 1), 1, 4)), Outcome::kSkipped);
  BlockStored placeholder = Foreign();
  placeholder.token_ids.reset();
  placeholder.block_size = 0;
  for (uint64_t i = 0; i < 2 * kTokenlessStoresToGiveUp; ++i) detector.Observe(Event(placeholder));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(detector.verdict().reason, "no testable store at the start of a prompt was seen yet");
  detector.Restart();
  for (uint64_t i = 0; i < kTokenlessStoresToGiveUp; ++i) detector.Observe(Event(placeholder));
  EXPECT_EQ(detector.verdict().state, SchemeState::kTokenMode)
      << "the new engine sent no token ids";
}

// If a block has one unit, the event lists exactly the extra keys that the hash of the block
// covers.
TEST(SchemeKeys, EveryKindOfKeyMatchesIfAUnitIsABlock) {
  HashInputs inputs;
  inputs.lora_name = "adapter";
  inputs.cache_salt = "tenant";
  inputs.mm_items = {{"image", 5, 20}};
  inputs.prompt_embeddings = PromptEmbeddings{std::string(64, 'e'), 1};
  for (const bool cbor : {false, true}) {
    EngineScheme engine = kPickle;
    if (cbor) engine.algorithm = HashAlgorithm::kSha256Cbor;
    SchemeDetector detector = Matched(engine);
    EXPECT_EQ(OutcomeOf(detector, DenseStore(engine, SchemeTokens(64, 1), 0, 4, 16, inputs)),
              Outcome::kMatched);
  }
}

TEST(SchemeKeys, WrongKeysContradictTheScheme) {
  HashInputs inputs;
  inputs.cache_salt = "tenant";
  SchemeDetector detector = Matched(kPickle);
  BlockStored store = DenseStore(kPickle, SchemeTokens(64, 1), 0, 4, 16, inputs);
  (*store.extra_keys)[0] = ExtraKeys{ExtraKey::Text("another")};
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kMismatched);
}

// Only the hash shows whether two equal identifiers are one Python object.
TEST(SchemeKeys, EqualIdentifiersMayBeOneObjectOrTwo) {
  for (const uint32_t tag : {0u, 1u}) {
    HashInputs inputs;
    inputs.mm_items = {{"image", 1, 3, tag}, {"image", 6, 4, tag}};
    SchemeDetector detector = Matched(kPickle);
    EXPECT_EQ(OutcomeOf(detector, DenseStore(kPickle, SchemeTokens(16, 1), 0, 1, 16, inputs)),
              Outcome::kMatched);
  }
}

// If sampled tokens complete a unit, its hash covers only the last item, but the event lists all
// items.
TEST(SchemeKeys, ItemsOfABlockThatGrewAreReadBothWays) {
  HashInputs inputs;
  inputs.mm_items = {{"first", 17, 3}, {"last", 22, 4}};
  for (const size_t arrived : {size_t{28}, size_t{32}}) {
    SchemeDetector detector = Matched(kPickle);
    const auto store = [&](int64_t block) {
      return DenseStore(kPickle, SchemeTokens(32, 1), block, block + 1, 16, inputs, arrived);
    };
    EXPECT_EQ(OutcomeOf(detector, store(0)), Outcome::kMatched);
    EXPECT_EQ(OutcomeOf(detector, store(1)), Outcome::kMatched) << arrived;
  }
}

TEST(SchemeKeys, BlocksOfSeveralItemsProveNothing) {
  HashInputs inputs;
  inputs.mm_items = {{"image", 1, 3, 1}, {"image", 6, 4, 1}, {"image", 11, 2, 0}};
  SchemeDetector detector = Matched(kPickle);
  EXPECT_EQ(OutcomeOf(detector, DenseStore(kPickle, SchemeTokens(16, 1), 0, 1, 16, inputs)),
            Outcome::kInconclusive);
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
}

// If a block has several units, the detector assigns adapter names and salts to units. It does not
// assign multimodal items and embeddings.
TEST(SchemeKeys, AdapterAndSaltAreAssignedToUnits) {
  HashInputs adapter;
  adapter.lora_name = "adapter";
  HashInputs salt;
  salt.cache_salt = "tenant";
  HashInputs both = adapter;
  both.cache_salt = "adapter";  // the adapter's name as salt; lora_name separates them
  for (const HashInputs& inputs : {HashInputs(), adapter, salt, both}) {
    SchemeDetector detector = Matched(kFine);
    const auto tokens = SchemeTokens(128, 1);
    EXPECT_EQ(OutcomeOf(detector, DenseStore(kFine, tokens, 0, 2, 32, inputs)), Outcome::kMatched);
    EXPECT_EQ(OutcomeOf(detector, DenseStore(kFine, tokens, 2, 4, 32, inputs)), Outcome::kMatched);
  }
}

TEST(SchemeKeys, TextsThatNoEngineSendsAreNotRead) {
  SchemeDetector detector = Matched(kFine);
  const auto tokens = SchemeTokens(128, 1);
  EXPECT_EQ(OutcomeOf(detector, DenseStore(kFine, tokens, 0, 2, 32)), Outcome::kMatched);
  BlockStored store = DenseStore(kFine, tokens, 2, 4, 32);
  (*store.extra_keys)[0] = ExtraKeys{ExtraKey::Text("a salt behind the root")};
  EXPECT_EQ(OutcomeOf(detector, store), Outcome::kSkipped);
}

TEST(SchemeKeys, ItemsAreNotAssignedToUnits) {
  HashInputs image;
  image.mm_items = {{"image", 5, 20}};
  HashInputs embeddings;
  embeddings.prompt_embeddings = PromptEmbeddings{std::string(64, 'e'), 1};
  for (const HashInputs& inputs : {image, embeddings}) {
    SchemeDetector detector = Matched(kFine);
    EXPECT_EQ(OutcomeOf(detector, DenseStore(kFine, SchemeTokens(64, 1), 0, 2, 32, inputs)),
              Outcome::kSkipped);
    EXPECT_EQ(detector.counters().skipped[static_cast<size_t>(SchemeSkip::kUnresolvedKeys)], 1u);
  }
}

// Without a proven scheme, the detector tries every hash_block_size. If an image lies in a block,
// the detector cannot try the values that are smaller than the block. Such a store must not refute
// a right registration.
TEST(SchemeKeys, ItemsProveNothingAgainstARegistration) {
  HashInputs image;
  image.mm_items = {{"image", 5, 20}};
  SchemeDetectorConfig config;
  config.hash_block_size = kFine.hash_block_size;
  SchemeDetector detector = SchemeDetector::Create(config).value();
  const auto tokens = SchemeTokens(32, 1);
  EXPECT_EQ(OutcomeOf(detector, DenseStore(kFine, tokens, 0, 1, 32, image)),
            Outcome::kInconclusive);
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(OutcomeOf(detector, DenseStore(kFine, tokens, 0, 1, 32)), Outcome::kMatched);
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
}

TEST(SchemeKeys, ListOfAnotherLengthIsNotRead) {
  BlockStored store = Foreign();
  store.extra_keys->pop_back();
  ExpectSkipped(store, SchemeSkip::kUnresolvedKeys);
}

// The time to read the keys of a block grows with the square of their number.
TEST(SchemeStores, BlocksWithTooManyKeysAreSkipped) {
  BlockStored store = Foreign();
  ExtraKeys keys;
  for (size_t i = 0; i < 64; ++i) keys.push_back(ExtraKey::Item("image " + std::to_string(i), 0));
  store.extra_keys.emplace(store.block_hashes.size(), std::nullopt);
  store.extra_keys->front() = keys;
  SchemeDetector detector = Matched(kPickle);
  EXPECT_NE(OutcomeOf(detector, store), Outcome::kSkipped);
  store.extra_keys->front()->push_back(ExtraKey::Item("one more", 0));
  ExpectSkipped(store, SchemeSkip::kUnresolvedKeys);
}

// 720,720 has more divisors up to 256 than any smaller number. Each of these divisors is a possible
// number of units.
TEST(SchemeStores, ASearchHashesABoundedNumberOfTokens) {
  constexpr int64_t kLargeBlock = 720'720;
  SchemeDetector detector = SchemeDetector::Create({}).value();
  BlockStored store = Foreign();
  store.block_hashes.resize(1);
  store.extra_keys->resize(1);
  store.block_size = kLargeBlock;
  store.token_ids = SchemeTokens(kLargeBlock, 1);
  detector.Observe(Event(store));
  EXPECT_EQ(detector.counters().inconclusive, 1u);
  EXPECT_GT(detector.counters().hashes, 0u);
  EXPECT_LE(detector.counters().hashes, uint64_t{kMaxSearchTokens} / kLargeBlock + 1);
}

// After each clear, the detector tests the next store. The search uses credit, which grows with the
// number of received tokens.
TEST(SchemeStores, ClearsDoNotMakeSearchesUnbounded) {
  constexpr int64_t kBlock = 5040;
  constexpr int64_t kStores = 100;
  SchemeDetector detector = SchemeDetector::Create({}).value();
  BlockStored store = Foreign();
  store.block_hashes.resize(1);
  store.extra_keys->resize(1);
  store.block_size = kBlock;
  store.token_ids = SchemeTokens(kBlock, 1);
  for (int64_t i = 0; i < kStores; ++i) {
    detector.Observe(Event(store));
    detector.Observe(Event(AllBlocksCleared{}));
  }
  const int64_t credit = kMaxSearchCredit + kSearchShare * kStores * kBlock;
  // A hash takes at least the tokens of the smallest unit that is tried.
  const int64_t most = (credit + kMaxSearchTokens) / (kBlock / kMaxUnitsPerBlock);
  EXPECT_EQ(detector.counters().tested, static_cast<uint64_t>(kStores));
  EXPECT_LE(detector.counters().hashes, static_cast<uint64_t>(most));
  // A store of the right scheme is still recognised.
  for (int64_t i = 0; i < 50'000 && detector.verdict().state != SchemeState::kMatched; ++i) {
    detector.Observe(testing::RootStore(kPickle, i));
  }
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
}

}  // namespace
}  // namespace kvcast
