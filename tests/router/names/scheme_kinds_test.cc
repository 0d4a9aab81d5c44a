// The detector proves the scheme for each kind of key separately. Only store events with keys of a
// kind prove the form of the keys of this kind.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "kvcast/router/scheme_detector.h"
#include "tests/router/names/scheme_streams.h"

namespace kvcast {
namespace {

using testing::DenseStore;
using testing::EngineScheme;
using testing::SchemeTokens;

constexpr ChainForm kTagged{ExtraKeyScheme::kTagged, 0};
constexpr char kPath[] = "/adapters/sql";

SchemeDetectorConfig KindConfig(uint64_t period = 1) {
  SchemeDetectorConfig config;
  config.sample_period = period;
  config.lora_paths = {{"sql", kPath}};
  return config;
}
SchemeDetector KindDetector(const SchemeDetectorConfig& config = KindConfig()) {
  return SchemeDetector::Create(config).value();
}

HashInputs Salt() {
  HashInputs inputs;
  inputs.cache_salt = "tenant";
  return inputs;
}
HashInputs Adapter(std::string path = kPath) {
  HashInputs inputs;
  inputs.lora_name = "sql";
  inputs.lora_path = std::move(path);
  return inputs;
}
HashInputs Image(int64_t offset = 5) {
  HashInputs inputs;
  inputs.mm_items = {{"image", offset, 20}};
  return inputs;
}
HashInputs Embeddings() {
  HashInputs inputs;
  inputs.prompt_embeddings = PromptEmbeddings{std::string(80, 'e'), 1};
  return inputs;
}

// Returns a store of the first four blocks of prompt number `n`, which has 80 tokens.
BlockStored Store(const EngineScheme& engine, int64_t n, const HashInputs& inputs = {}) {
  return DenseStore(engine, SchemeTokens(80, 1000 * n), 0, 4, 16, inputs);
}

KeyProof ProofOf(const SchemeDetector& detector, KeyKind kind) {
  return detector.verdict().of(kind).proof;
}
const KeyKindCounters& CountsOf(const SchemeDetector& detector, KeyKind kind) {
  return detector.counters().kinds[static_cast<size_t>(kind)];
}

struct Kind {
  KeyKind kind;
  HashInputs inputs;
};
std::vector<Kind> KeyedKinds() {
  return {{KeyKind::kSalt, Salt()},
          {KeyKind::kLora, Adapter()},
          {KeyKind::kImages, Image()},
          {KeyKind::kEmbeddings, Embeddings()}};
}

using Case = std::tuple<HashAlgorithm, ExtraKeyScheme, int64_t>;
struct EveryForm : ::testing::TestWithParam<Case> {
  EveryForm() {
    engine.algorithm = std::get<0>(GetParam());
    engine.chain = {std::get<1>(GetParam()), std::get<2>(GetParam())};
  }
  KeyProof proof() const {
    return engine.chain.extra_keys == ExtraKeyScheme::kBare ? KeyProof::kBare : KeyProof::kTagged;
  }
  KeyKind base() const {
    return engine.chain.lookahead > 0 ? KeyKind::kLookahead : KeyKind::kPlain;
  }
  EngineScheme engine;
};

TEST_P(EveryForm, BlocksWithoutKeysProveNoKeys) {
  SchemeDetector detector = KindDetector();
  for (int64_t n = 0; n < 100; ++n) detector.Observe(Store(engine, n));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  EXPECT_EQ(detector.verdict().lookahead, engine.chain.lookahead);
  EXPECT_EQ(ProofOf(detector, base()), KeyProof::kProven);
  for (const Kind& keyed : KeyedKinds()) {
    EXPECT_EQ(ProofOf(detector, keyed.kind), KeyProof::kUnproven) << KeyKindName(keyed.kind);
    EXPECT_FALSE(ProvenForm(detector.verdict(), keyed.inputs)) << KeyKindName(keyed.kind);
  }
  EXPECT_TRUE(ProvenForm(detector.verdict(), {}));
}

TEST_P(EveryForm, EachKindIsProvenByItsFirstStore) {
  for (const Kind& keyed : KeyedKinds()) {
    SchemeDetector detector = KindDetector(KindConfig(64));
    detector.Observe(Store(engine, 1));
    detector.Observe(Store(engine, 2));
    detector.Observe(Store(engine, 3, keyed.inputs));
    for (const Kind& other : KeyedKinds()) {
      const KeyProof expected = other.kind == keyed.kind ? proof() : KeyProof::kUnproven;
      EXPECT_EQ(ProofOf(detector, other.kind), expected) << KeyKindName(other.kind);
    }
    EXPECT_EQ(detector.counters().mismatched, 0u);
  }
}

TEST_P(EveryForm, AFirstStoreWithKeysAtTheRootProvesSchemeAndForm) {
  for (const Kind& keyed : KeyedKinds()) {
    SchemeDetector detector = KindDetector();
    detector.Observe(Store(engine, 3, keyed.inputs));
    EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
    EXPECT_EQ(ProofOf(detector, keyed.kind), proof()) << KeyKindName(keyed.kind);
  }
}

TEST_P(EveryForm, ProvenFormGivesTheChainOfTheEngine) {
  const auto tokens = SchemeTokens(80, 7000);
  for (const Kind& keyed : KeyedKinds()) {
    SchemeDetector detector = KindDetector();
    detector.Observe(Store(engine, 1));
    detector.Observe(Store(engine, 3, keyed.inputs));
    const auto form = ProvenForm(detector.verdict(), keyed.inputs);
    ASSERT_TRUE(form) << WhyUnprovenForm(detector.verdict(), keyed.inputs);
    const ChainScheme& scheme = *detector.verdict().scheme;
    std::vector<Digest> chain;
    BlockHasher::FromNoneHash(scheme.algorithm, scheme.none_hash)
        ->ExtendChain(tokens, scheme.hash_block_size, keyed.inputs, chain, *form);
    const BlockStored sent = DenseStore(engine, tokens, 0, 4, 16, keyed.inputs);
    ASSERT_GE(chain.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(ToEventHash(chain[i], EventHashForm::kInt64), sent.block_hashes[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, EveryForm,
    ::testing::Combine(::testing::Values(HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                                         HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor),
                       ::testing::Values(ExtraKeyScheme::kBare, ExtraKeyScheme::kTagged),
                       ::testing::Values(0, 1, 3)));

TEST(SchemeKinds, LookaheadThatTheHashesIgnoreIsNotAProof) {
  EngineScheme engine;
  BlockStored store = Store(engine, 1);
  store.lookahead = Store({.chain = {.lookahead = 1}}, 1).lookahead;
  SchemeDetector detector = KindDetector();
  detector.Observe(Event(store));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(detector.counters().mismatched, 1u);
  // Hashes that cover an unsent token do not fit either.
  BlockStored silent = Store({.chain = {.lookahead = 1}}, 2);
  silent.lookahead.reset();
  detector.Observe(Event(silent));
  EXPECT_EQ(detector.counters().mismatched, 2u);
}

TEST(SchemeKinds, LookaheadTokensThatDifferFromTheSpanAreAContradiction) {
  const EngineScheme engine{.chain = {.lookahead = 2}};
  SchemeDetector detector = KindDetector();
  detector.Observe(Store(engine, 1));
  EXPECT_EQ(ProofOf(detector, KeyKind::kLookahead), KeyProof::kProven);
  BlockStored store = Store(engine, 2);
  store.lookahead->token_ids[3] ^= 1;
  detector.Observe(Event(store));
  EXPECT_EQ(ProofOf(detector, KeyKind::kLookahead), KeyProof::kRefuted);
  EXPECT_EQ(detector.counters().contradictions, 1u);
}

TEST(SchemeKinds, AnotherLookaheadHasToBeProvenAgain) {
  SchemeDetector detector = KindDetector();
  detector.Observe(Store({.chain = {.lookahead = 1}}, 1));
  detector.Observe(Store({}, 2));
  EXPECT_EQ(detector.verdict().lookahead, 0);
  EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kProven);
  EXPECT_EQ(ProofOf(detector, KeyKind::kLookahead), KeyProof::kUnproven);
}

TEST(SchemeKinds, AnAdapterWithoutARegisteredPathStaysUnprovenUnlessItsKeysAreBare) {
  SchemeDetectorConfig without_paths = KindConfig();
  without_paths.lora_paths.clear();
  SchemeDetector detector = KindDetector(without_paths);
  detector.Observe(Store({.chain = kTagged}, 1));
  for (int64_t n = 2; n < 100; ++n) detector.Observe(Store({.chain = kTagged}, n, Adapter()));
  EXPECT_EQ(ProofOf(detector, KeyKind::kLora), KeyProof::kUnproven);
  EXPECT_EQ(detector.verdict().of(KeyKind::kLora).reason,
            "path of LoRA adapter sql is not registered");
  EXPECT_EQ(WhyUnprovenForm(detector.verdict(), Adapter()),
            "lora keys are unproven (path of LoRA adapter sql is not registered)");
  EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kProven);
  EXPECT_EQ(detector.counters().contradictions, 0u);
  detector.Observe(Store({}, 200, Adapter()));
  EXPECT_EQ(ProofOf(detector, KeyKind::kLora), KeyProof::kBare);
}

// Two store events with one adapter name use different paths. The path that is not registered
// refutes the kind kLora and no other kind.
TEST(SchemeKinds, AnotherPathOfAnAdapterRefutesOnlyTheKindLora) {
  const EngineScheme engine{.chain = kTagged};
  SchemeDetector detector = KindDetector();
  HashInputs salted = Adapter();
  salted.cache_salt = "tenant";
  detector.Observe(Store(engine, 1, salted));
  EXPECT_EQ(ProofOf(detector, KeyKind::kLora), KeyProof::kTagged);
  salted.lora_path = "/adapters/other";
  detector.Observe(Store(engine, 2, salted));
  EXPECT_EQ(ProofOf(detector, KeyKind::kLora), KeyProof::kRefuted);
  EXPECT_EQ(CountsOf(detector, KeyKind::kLora).contradictions, 1u);
  EXPECT_EQ(ProofOf(detector, KeyKind::kSalt), KeyProof::kTagged);
}

TEST(SchemeKinds, KeysThatFitNeitherFormRefuteTheirKindAlone) {
  EngineScheme engine;
  for (const Kind& keyed : KeyedKinds()) {
    SchemeDetector detector = KindDetector(KindConfig(64));
    detector.Observe(Store(engine, 1));
    for (int64_t n = 2; n < 40; ++n) {
      BlockStored store = Store(engine, n, keyed.inputs);
      store.block_hashes = Store({.seed = "unknown"}, n, keyed.inputs).block_hashes;
      detector.Observe(Event(store));
      EXPECT_EQ(ProofOf(detector, keyed.kind), KeyProof::kRefuted) << KeyKindName(keyed.kind);
    }
    EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
    EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kProven);
    EXPECT_EQ(CountsOf(detector, keyed.kind).misses, kSchemeMissesToGiveUp);
    EXPECT_EQ(detector.counters().contradictions, 0u);
  }
}

TEST(SchemeKinds, AContradictionRefutesTheKindUntilTheNextFit) {
  for (const Kind& keyed : KeyedKinds()) {
    const EngineScheme engine{.chain = kTagged};
    SchemeDetector detector = KindDetector();
    detector.Observe(Store(engine, 1));
    detector.Observe(Store(engine, 2, keyed.inputs));
    BlockStored wrong = Store(engine, 3, keyed.inputs);
    (*wrong.token_ids)[3] ^= 1;
    detector.Observe(Event(wrong));
    EXPECT_EQ(ProofOf(detector, keyed.kind), KeyProof::kRefuted) << KeyKindName(keyed.kind);
    EXPECT_EQ(detector.counters().contradictions, 1u);
    EXPECT_EQ(CountsOf(detector, keyed.kind).contradictions, 1u);
    EXPECT_FALSE(ProvenForm(detector.verdict(), keyed.inputs));
    detector.Observe(Store(engine, 4, keyed.inputs));
    EXPECT_EQ(ProofOf(detector, keyed.kind), KeyProof::kTagged);
    EXPECT_EQ(detector.counters().contradictions, 1u);
  }
}

TEST(SchemeKinds, AContradictionOfAPlainStoreRefutesThePlainKind) {
  SchemeDetector detector = KindDetector();
  detector.Observe(Store({}, 1));
  BlockStored wrong = Store({}, 2);
  (*wrong.token_ids)[3] ^= 1;
  detector.Observe(Event(wrong));
  EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kRefuted);
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  EXPECT_EQ(detector.counters().contradictions, 1u);
  // The wrong token lies in a later block.
  detector.Observe(Store({}, 3));
  EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kProven);
  wrong = Store({}, 4);
  (*wrong.token_ids)[40] ^= 1;
  detector.Observe(Event(wrong));
  EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kRefuted);
  EXPECT_EQ(detector.counters().contradictions, 2u);
}

TEST(SchemeKinds, AnotherFormOfTheKeysIsFollowedAndCounted) {
  SchemeDetector detector = KindDetector();
  detector.Observe(Store({}, 1, Salt()));
  EXPECT_EQ(ProofOf(detector, KeyKind::kSalt), KeyProof::kBare);
  detector.Observe(Store({.chain = kTagged}, 2, Salt()));
  EXPECT_EQ(ProofOf(detector, KeyKind::kSalt), KeyProof::kTagged);
  EXPECT_EQ(detector.counters().contradictions, 1u);
}

TEST(SchemeKinds, AnotherSchemeKeepsNoProof) {
  for (const bool restart : {false, true}) {
    SchemeDetector detector = KindDetector();
    detector.Observe(Store({.seed = "0", .chain = kTagged}, 1, Salt()));
    if (restart) {
      detector.Restart();
      EXPECT_EQ(ProofOf(detector, KeyKind::kSalt), KeyProof::kUnproven);
      EXPECT_FALSE(ProvenForm(detector.verdict(), {}));
    }
    detector.Observe(Store({.seed = "42"}, 2));
    EXPECT_EQ(ProofOf(detector, KeyKind::kSalt), KeyProof::kUnproven);
    EXPECT_EQ(ProofOf(detector, KeyKind::kPlain), KeyProof::kProven);
  }
}

TEST(SchemeKinds, OneStoreInAPeriodOfEachKind) {
  const EngineScheme engine{.chain = kTagged};
  SchemeDetector detector = KindDetector(KindConfig(64));
  detector.Observe(Store(engine, 1));
  const uint64_t tested = detector.counters().tested;
  for (int64_t n = 0; n < 64 * 4; ++n) {
    detector.Observe(Store(engine, 1000 + n));
    for (const Kind& keyed : KeyedKinds()) detector.Observe(Store(engine, n + 2, keyed.inputs));
  }
  EXPECT_EQ(detector.counters().tested - tested, 4u * (1 + KeyedKinds().size()));
}

// Stores without keys and stores with keys are sampled separately, even if they alternate and the
// period is 2.
TEST(SchemeKinds, StoresWithKeysAndPlainStoresAreSampledSeparately) {
  SchemeDetector detector = KindDetector(KindConfig(2));
  for (int64_t n = 0; n < 10; ++n) {
    detector.Observe(Store({}, 2 * n));
    detector.Observe(Store({}, 2 * n + 1, Salt()));
  }
  EXPECT_EQ(CountsOf(detector, KeyKind::kSalt).fits, 5u);
  EXPECT_GE(CountsOf(detector, KeyKind::kPlain).fits, 5u * 4);
}

TEST(SchemeKinds, AKindThatFirstOccursInALaterBlockIsHashedUpToThatBlock) {
  const EngineScheme engine{.chain = kTagged};
  const auto tokens = SchemeTokens(64 * 16, 1);
  SchemeDetector detector = KindDetector(KindConfig(64));
  detector.Observe(Store(engine, 1));
  detector.Observe(DenseStore(engine, tokens, 0, 64, 16, Image(40 * 16 + 3)));
  EXPECT_EQ(ProofOf(detector, KeyKind::kImages), KeyProof::kTagged);
  EXPECT_EQ(CountsOf(detector, KeyKind::kImages).fits, 1u);
}

TEST(SchemeKinds, AKindThatFirstOccursBeyondTheLimitStaysUnproven) {
  const EngineScheme engine{.chain = kTagged};
  const int64_t blocks = kMaxTestedUnits + 8;
  const auto tokens = SchemeTokens(blocks * 16, 1);
  SchemeDetector detector = KindDetector(KindConfig(64));
  detector.Observe(Store(engine, 1));
  const uint64_t before = detector.counters().hashes;
  detector.Observe(DenseStore(engine, tokens, 0, blocks, 16, Image((blocks - 2) * 16)));
  EXPECT_EQ(ProofOf(detector, KeyKind::kImages), KeyProof::kUnproven);
  EXPECT_EQ(detector.counters().hashes - before, static_cast<uint64_t>(kMaxTestedUnits));
}

TEST(SchemeKinds, FormsThatDoNotAgreeProveNoPromptWithBoth) {
  SchemeDetector detector = KindDetector();
  detector.Observe(Store({}, 1));
  detector.Observe(Store({}, 2, Salt()));
  detector.Observe(Store({.chain = kTagged}, 3, Image()));
  HashInputs both = Salt();
  both.mm_items = Image().mm_items;
  EXPECT_TRUE(ProvenForm(detector.verdict(), Salt()));
  EXPECT_TRUE(ProvenForm(detector.verdict(), Image()));
  EXPECT_FALSE(ProvenForm(detector.verdict(), both));
  EXPECT_EQ(WhyUnprovenForm(detector.verdict(), both),
            "images keys have another form (bare or tagged)");
}

TEST(SchemeKinds, TheLikelyFormFollowsFromTheProofsOrTheLookahead) {
  SchemeDetector detector = KindDetector();
  EXPECT_EQ(LikelyForm(detector.verdict()), ChainForm());
  detector.Observe(Store({.chain = {.lookahead = 1}}, 1));
  EXPECT_EQ(LikelyForm(detector.verdict()), (ChainForm{ExtraKeyScheme::kTagged, 1}));
  detector.Observe(Store({.chain = {.lookahead = 1}}, 2, Salt()));
  EXPECT_EQ(LikelyForm(detector.verdict()), (ChainForm{ExtraKeyScheme::kBare, 1}));
}

}  // namespace
}  // namespace kvcast
