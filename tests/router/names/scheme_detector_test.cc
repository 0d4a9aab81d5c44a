// The detector finds the hash scheme of a source from its stores, compares the scheme with the
// registration, and continues to check the scheme.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/scheme_detector.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/router/names/scheme_streams.h"

namespace kvcast {
namespace {

using testing::DenseStore;
using testing::EngineScheme;
using testing::EngineStream;
using testing::RootStore;
using testing::SchemeTokens;

constexpr HashAlgorithm kAlgorithms[] = {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                                         HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor};

SchemeDetector Detector(const SchemeDetectorConfig& config = {}) {
  return SchemeDetector::Create(config).value();
}

SchemeDetectorConfig Registered(const EngineScheme& scheme) {
  SchemeDetectorConfig config;
  config.algorithm = scheme.algorithm;
  config.seed = scheme.seed;
  config.hash_block_size = scheme.hash_block_size;
  return config;
}

void ObserveAll(SchemeDetector& detector, const std::vector<Event>& events) {
  for (const Event& event : events) detector.Observe(event);
}

void ExpectScheme(const SchemeDetector& detector, SchemeState state, const EngineScheme& scheme) {
  EXPECT_EQ(detector.verdict().state, state) << detector.verdict().reason;
  ASSERT_TRUE(detector.verdict().scheme);
  const ChainScheme& found = *detector.verdict().scheme;
  EXPECT_EQ(found.algorithm, scheme.algorithm);
  EXPECT_EQ(found.seed, scheme.seed);
  EXPECT_EQ(found.hash_block_size, scheme.hash_block_size);
  const BlockHasher hasher = testing::HasherOf(scheme);
  const auto none_hash = hasher.none_hash().bytes();
  EXPECT_EQ(found.none_hash, std::vector<uint8_t>(none_hash.begin(), none_hash.end()));
}

TEST(SchemeDetector, StateIsUnknownBeforeAStoreAtTheRoot) {
  SchemeDetector detector = Detector();
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(detector.verdict().reason, "no testable store at the start of a prompt was seen yet");
  detector.Observe(Event(DenseStore({}, SchemeTokens(64, 1), 1, 4)));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
}

TEST(SchemeDetector, AStoreAtTheRootThatFitsNoSchemeIsTheReason) {
  SchemeDetector detector = Detector();
  detector.Observe(RootStore({.seed = "nobody knows"}, 1));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(detector.verdict().reason,
            "no known scheme has fitted a store at the start of a prompt yet");
}

// Engines of every scheme: algorithm, seed, form of the hashes on the wire, and groups.
struct Groups {
  std::vector<GroupSpec> specs;
  int64_t hash_block_size = 0;
};
const Groups kGroups[] = {
    {{{.block_size = 16}}, 16},
    {{{.block_size = 64},
      {.kind = SpecKind::kSlidingWindow, .block_size = 16, .sliding_window = 256}},
     16},
    {{{.block_size = 32},
      {.kind = SpecKind::kMamba, .block_size = 64, .mamba_mode = MambaMode::kAlign}},
     8},
    {{{.block_size = 48}}, 48},
};
using EngineCase = std::tuple<HashAlgorithm, std::string, EventHashForm, int>;

struct EveryScheme : ::testing::TestWithParam<EngineCase> {
  EveryScheme() {
    scheme.algorithm = std::get<0>(GetParam());
    scheme.seed = std::get<1>(GetParam());
    scheme.form = std::get<2>(GetParam());
    const Groups& groups = kGroups[std::get<3>(GetParam())];
    scheme.hash_block_size = groups.hash_block_size;
    stream = EngineStream(scheme, groups.specs);
  }
  EngineScheme scheme;
  std::vector<Event> stream;
};

TEST_P(EveryScheme, IsFoundOutFromTheEventsAlone) {
  SchemeDetectorConfig config;
  config.seeds.push_back("my seed");
  config.sample_period = 1;
  SchemeDetector detector = Detector(config);
  ObserveAll(detector, stream);
  ExpectScheme(detector, SchemeState::kMatched, scheme);
  EXPECT_EQ(detector.verdict().reason, "");
  const SchemeCounters& counters = detector.counters();
  EXPECT_GE(counters.testable, 8u);
  EXPECT_EQ(counters.tested, counters.testable);
  EXPECT_EQ(counters.matched, counters.tested);
}

TEST_P(EveryScheme, WithoutItsSeedIsTokenMode) {
  SchemeDetectorConfig config;
  config.seeds = {"a decoy", "another"};
  config.none_hashes = {std::vector<uint8_t>(32, 7)};
  SchemeDetector detector = Detector(config);
  ObserveAll(detector, stream);
  EXPECT_EQ(detector.verdict().state, SchemeState::kTokenMode);
  EXPECT_EQ(detector.verdict().reason, "no known scheme fits the stores");
}

TEST_P(EveryScheme, WrongRegistrationIsReportedWithTheFirstStore) {
  EngineScheme algorithm = scheme;
  algorithm.algorithm = kAlgorithms[(static_cast<size_t>(scheme.algorithm) + 1) % 4];
  EngineScheme seed = scheme;
  seed.seed = "wrong";
  EngineScheme size = scheme;
  size.hash_block_size = scheme.hash_block_size / 2;
  for (const EngineScheme& wrong : {algorithm, seed, size}) {
    SchemeDetectorConfig config = Registered(wrong);
    config.seeds.push_back("my seed");
    SchemeDetector detector = Detector(config);
    detector.Observe(stream[0]);
    ExpectScheme(detector, SchemeState::kMismatch, scheme);
    ObserveAll(detector, stream);
    ExpectScheme(detector, SchemeState::kMismatch, scheme);
    EXPECT_EQ(detector.counters().mismatched, 1u);
  }
}

TEST_P(EveryScheme, RightRegistrationIsConfirmed) {
  SchemeDetectorConfig config = Registered(scheme);
  config.seeds.clear();
  SchemeDetector detector = Detector(config);
  ObserveAll(detector, stream);
  ExpectScheme(detector, SchemeState::kMatched, scheme);
  EXPECT_EQ(detector.counters().mismatched, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Engines, EveryScheme,
    ::testing::Combine(::testing::ValuesIn(kAlgorithms),
                       ::testing::Values(std::string(kDefaultHashSeed), "my seed"),
                       ::testing::Values(EventHashForm::kInt64, EventHashForm::kBytes),
                       ::testing::Range(0, 4)));

TEST(SchemeRegistration, ReportNamesBothSides) {
  SchemeDetector detector = Detector(Registered({.seed = "0"}));
  detector.Observe(
      RootStore({.algorithm = HashAlgorithm::kXxhash, .seed = "42", .hash_block_size = 32}, 1));
  EXPECT_EQ(detector.verdict().reason,
            "registered sha256, seed 0, unit 16; the stores have xxhash, seed 42, unit 32");
}

TEST(SchemeRegistration, AWrongRegistrationIsReportedEvenIfNoSchemeFits) {
  SchemeDetectorConfig config = Registered({.seed = "0"});
  SchemeDetector detector = Detector(config);
  detector.Observe(RootStore({.seed = "nobody knows"}, 1));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMismatch);
  EXPECT_EQ(detector.verdict().reason,
            "registered sha256, seed 0, unit 16; no known scheme fits the stores");
  EXPECT_FALSE(detector.verdict().scheme);
}

TEST(SchemeRegistration, OnlyRegisteredPropertiesAreCompared) {
  SchemeDetectorConfig config;
  config.hash_block_size = 16;
  SchemeDetector any_hash = Detector(config);
  any_hash.Observe(RootStore({.algorithm = HashAlgorithm::kXxhashCbor, .seed = "42"}, 1));
  EXPECT_EQ(any_hash.verdict().state, SchemeState::kMatched);
  any_hash.Restart();
  any_hash.Observe(RootStore({.seed = "42", .hash_block_size = 32}, 1));
  EXPECT_EQ(any_hash.verdict().reason,
            "registered unit 16; the stores have sha256, seed 42, unit 32");
}

TEST(SchemeRegistration, TakesARawNoneHash) {
  const EngineScheme engine{.seed = "nobody knows"};
  const auto none_hash = testing::HasherOf(engine).none_hash();
  SchemeDetectorConfig config;
  config.none_hash.assign(none_hash.bytes().begin(), none_hash.bytes().end());
  SchemeDetector detector = Detector(config);
  detector.Observe(RootStore(engine, 1));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  EXPECT_EQ(detector.verdict().scheme->seed.size(), std::string("none_hash:01234567").size());
  EXPECT_EQ(detector.verdict().scheme->none_hash, config.none_hash);
}

TEST(SchemeRegistration, BadConfigurationsAreRefused) {
  SchemeDetectorConfig seeds;
  seeds.seeds.assign(kMaxSchemeSeeds + 1, "x");
  EXPECT_EQ(SchemeDetector::Create(seeds).status().message(), "seeds: more than 64");
  SchemeDetectorConfig none_hash;
  none_hash.none_hashes = {std::vector<uint8_t>(33, 1)};
  EXPECT_FALSE(SchemeDetector::Create(none_hash).ok());
  SchemeDetectorConfig size;
  size.hash_block_size = -1;
  EXPECT_EQ(SchemeDetector::Create(size).status().message(), "hash_block_size: out of range");
  SchemeDetectorConfig period;
  period.sample_period = 0;
  EXPECT_FALSE(SchemeDetector::Create(period).ok());
}

// With byte hashes, a store has the whole hash of its parent. So stores behind the root show the
// algorithm and the hash_block_size.
TEST(SchemeBehindTheRoot, ByteHashesShowAlgorithmAndUnitButNoSeed) {
  const EngineScheme engine{.algorithm = HashAlgorithm::kXxhash, .form = EventHashForm::kBytes};
  const auto prompt = SchemeTokens(64, 1);
  SchemeDetector detector = Detector();
  detector.Observe(DenseStore(engine, prompt, 2, 4));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  ASSERT_TRUE(detector.verdict().scheme);
  EXPECT_EQ(ToString(*detector.verdict().scheme), "xxhash, unit 16");
  detector.Observe(DenseStore(engine, prompt, 0, 2));
  ExpectScheme(detector, SchemeState::kMatched, engine);
  EXPECT_EQ(detector.counters().mismatched, 0u);
}

TEST(SchemeBehindTheRoot, WrongAlgorithmIsReportedThere) {
  const EngineScheme engine{.algorithm = HashAlgorithm::kSha256Cbor, .form = EventHashForm::kBytes};
  const auto prompt = SchemeTokens(64, 1);
  SchemeDetector detector = Detector(Registered({}));
  detector.Observe(DenseStore(engine, prompt, 2, 4));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMismatch);
  EXPECT_EQ(ToString(*detector.verdict().scheme), "sha256_cbor, unit 16");
  detector.Observe(DenseStore(engine, prompt, 0, 2));
  ExpectScheme(detector, SchemeState::kMismatch, engine);
}

TEST(SchemeBehindTheRoot, SeedOfAnotherAlgorithmIsLookedForAtOnce) {
  const EngineScheme before{.form = EventHashForm::kBytes};
  const EngineScheme after{.algorithm = HashAlgorithm::kXxhash, .form = EventHashForm::kBytes};
  for (const bool registered : {false, true}) {
    SchemeDetector detector = Detector(registered ? Registered(before) : SchemeDetectorConfig());
    detector.Observe(RootStore(before, 1));
    detector.Observe(DenseStore(after, SchemeTokens(64, 1), 2, 4));
    EXPECT_NE(detector.verdict().state, SchemeState::kMatched);
    detector.Observe(RootStore(after, 2));
    ExpectScheme(detector, registered ? SchemeState::kMismatch : SchemeState::kMatched, after);
    EXPECT_EQ(detector.counters().changes, 1u);
  }
}

TEST(SchemeBehindTheRoot, UnknownSeedStaysReportedWhateverFollows) {
  const EngineScheme engine{.seed = "nobody knows", .form = EventHashForm::kBytes};
  const auto prompt = SchemeTokens(64, 1);
  for (const bool registered : {false, true}) {
    SchemeDetector detector = Detector(registered ? Registered({}) : SchemeDetectorConfig());
    for (int64_t n = 1; n <= 2; ++n) detector.Observe(RootStore(engine, n));
    const SchemeState reported = registered ? SchemeState::kMismatch : SchemeState::kTokenMode;
    EXPECT_EQ(detector.verdict().state, reported);
    for (int64_t n = 0; n < 200; ++n) detector.Observe(DenseStore(engine, prompt, 2, 4));
    EXPECT_EQ(detector.verdict().state, reported);
    ASSERT_TRUE(detector.verdict().scheme);
    EXPECT_EQ(ToString(*detector.verdict().scheme), "sha256, unit 16");
  }
}

// With integer hashes, a store has only 8 bytes of the hash of its parent. So the detector follows
// a chain from the root.
TEST(SchemeBehindTheRoot, IntegersAreFollowedFromVerifiedBlocks) {
  const auto prompt = SchemeTokens(96, 1);
  SchemeDetectorConfig config;
  config.sample_period = 1;
  SchemeDetector detector = Detector(config);
  detector.Observe(DenseStore({}, prompt, 2, 4));
  EXPECT_EQ(detector.counters().skipped[static_cast<size_t>(SchemeSkip::kUnknownParent)], 1u);
  detector.Observe(DenseStore({}, prompt, 0, 2));
  detector.Observe(DenseStore({}, prompt, 2, 4));
  detector.Observe(DenseStore({}, prompt, 4, 6));
  EXPECT_EQ(detector.counters().matched, 3u);
  detector.Observe(DenseStore({}, SchemeTokens(96, 500), 4, 6));
  EXPECT_EQ(detector.counters().testable, 3u);
}

TEST(SchemeBehindTheRoot, VerifiedBlocksAreBounded) {
  SchemeDetectorConfig config;
  config.sample_period = 1;
  SchemeDetector detector = Detector(config);
  const auto stores = static_cast<int64_t>(kMaxVerifiedDigests) + 1;
  const auto store = [](int64_t n, int64_t block) {
    return DenseStore({}, SchemeTokens(32, 1000 * n), block, block + 1);
  };
  for (int64_t n = 1; n <= stores; ++n) detector.Observe(store(n, 0));
  EXPECT_EQ(detector.counters().forgotten, 1u);
  const uint64_t testable = detector.counters().testable;
  detector.Observe(store(1, 1));
  EXPECT_EQ(detector.counters().testable, testable);
  detector.Observe(store(2, 1));
  EXPECT_EQ(detector.counters().testable, testable + 1);
}

TEST(SchemeSampling, OneTestableStoreInSixtyFourAfterTheMatch) {
  SchemeDetector detector = Detector();
  for (int64_t n = 0; n < 64 * 10; ++n) detector.Observe(RootStore({}, n));
  EXPECT_EQ(detector.counters().testable, 640u);
  EXPECT_EQ(detector.counters().tested, 10u);
}

TEST(SchemeSampling, StoresAtTheRootAndBehindTheRootAreSampledSeparately) {
  const EngineScheme engine{.form = EventHashForm::kBytes};
  const auto prompt = SchemeTokens(64, 1);
  SchemeDetector detector = Detector();
  for (int64_t n = 0; n < 64 * 5; ++n) {
    detector.Observe(RootStore(engine, n));
    for (int i = 0; i < 3; ++i) detector.Observe(DenseStore(engine, prompt, 2, 4));
  }
  EXPECT_EQ(detector.counters().tested, 5u + 15u);
}

// A store behind the root fits any seed. Such stores must not use up the samples of stores at the
// root.
TEST(SchemeSampling, RootsAreSampledHoweverFewTheyAre) {
  const EngineScheme before{.seed = "0", .form = EventHashForm::kBytes};
  const EngineScheme after{.seed = "42", .form = EventHashForm::kBytes};
  SchemeDetector detector = Detector();
  const auto send = [&detector](const EngineScheme& engine) {
    for (int64_t n = 0; n < 64; ++n) {
      for (int i = 0; i < 3; ++i) detector.Observe(DenseStore(engine, SchemeTokens(64, 1), 2, 4));
      detector.Observe(RootStore(engine, n));
    }
  };
  send(before);
  ExpectScheme(detector, SchemeState::kMatched, before);
  send(after);
  ExpectScheme(detector, SchemeState::kMatched, after);
}

TEST(SchemeSampling, CostIsBoundedWhateverTheStoresHold) {
  const EngineScheme engine{.hash_block_size = 8};
  SchemeDetectorConfig config = Registered(engine);
  config.sample_period = 1;
  SchemeDetector detector = Detector(config);
  const auto store = DenseStore(engine, SchemeTokens(64 * 100, 1), 0, 100, 64);
  detector.Observe(store);
  const uint64_t first = detector.counters().hashes;
  detector.Observe(store);
  EXPECT_EQ(
      detector.counters().hashes - first,
      8 + static_cast<uint64_t>(kMaxFollowedUnits));  // the first block and the next two blocks
}

TEST(SchemeSampling, UnknownSchemeIsSearchedRarely) {
  SchemeDetectorConfig config;
  config.seeds = {"a decoy"};
  SchemeDetector detector = Detector(config);
  for (int64_t n = 0; n < 64 * 4; ++n) detector.Observe(RootStore({}, n));
  EXPECT_EQ(detector.counters().tested, kSchemeMissesToGiveUp + 3);
  EXPECT_EQ(detector.counters().hashes, 4 * 31 * detector.counters().tested);
}

TEST(SchemeChange, ASilentChangeIsFoundWithinAPeriodAndNamed) {
  const EngineScheme before{.seed = "0"};
  const EngineScheme after{.seed = "42"};
  SchemeDetector detector = Detector();
  for (int64_t n = 0; n < 100; ++n) detector.Observe(RootStore(before, n));
  for (int64_t n = 0; n < 64; ++n) detector.Observe(RootStore(after, n));
  ExpectScheme(detector, SchemeState::kMatched, after);
  EXPECT_EQ(detector.verdict().reason, "changed from sha256, seed 0, unit 16");
  EXPECT_EQ(detector.counters().changes, 1u);
}

TEST(SchemeChange, IsLookedForAtOnceAfterAClearAndAfterARestart) {
  const EngineScheme before{.seed = "0"};
  const EngineScheme after{.seed = "42", .hash_block_size = 32};
  for (const bool restart : {false, true}) {
    SchemeDetector detector = Detector();
    detector.Observe(RootStore(before, 1));
    detector.Observe(RootStore(before, 2));
    if (restart) {
      detector.Restart();
      EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
    } else {
      detector.Observe(Event(AllBlocksCleared()));
    }
    detector.Observe(RootStore(after, 3));
    ExpectScheme(detector, SchemeState::kMatched, after);
    EXPECT_EQ(detector.counters().changes, 1u);
  }
}

TEST(SchemeChange, ClearOfAnotherTierForcesNoTest) {
  SchemeDetector detector = Detector();
  detector.Observe(RootStore({}, 1));
  detector.Observe(Event(AllBlocksCleared{.medium = "CPU"}));
  detector.Observe(RootStore({}, 2));
  EXPECT_EQ(detector.counters().tested, 1u);
}

TEST(SchemeChange, ToABlockSizeThatTheOldUnitDoesNotDivide) {
  SchemeDetector detector = Detector();
  detector.Observe(RootStore({.hash_block_size = 16}, 1));
  for (int64_t n = 0; n < 64; ++n) detector.Observe(RootStore({.hash_block_size = 24}, n));
  ExpectScheme(detector, SchemeState::kMatched, {.hash_block_size = 24});
}

TEST(SchemeChange, AwayFromARegistrationIsAMismatch) {
  const EngineScheme before{.seed = "0"};
  SchemeDetector detector = Detector(Registered(before));
  detector.Observe(RootStore(before, 1));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  detector.Observe(Event(AllBlocksCleared()));
  detector.Observe(RootStore({.seed = "42"}, 2));
  ExpectScheme(detector, SchemeState::kMismatch, {.seed = "42"});
  detector.Observe(Event(AllBlocksCleared()));
  detector.Observe(RootStore(before, 3));
  ExpectScheme(detector, SchemeState::kMatched, before);
}

TEST(SchemeChange, OneStoreOfAnUnknownSchemeDropsNothingAndTwoDropTheScheme) {
  SchemeDetector detector = Detector();
  detector.Observe(RootStore({}, 1));
  const EngineScheme unknown{.seed = "nobody knows"};
  detector.Observe(Event(AllBlocksCleared()));
  detector.Observe(RootStore(unknown, 2));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  detector.Observe(RootStore({}, 3));
  detector.Observe(Event(AllBlocksCleared()));
  detector.Observe(RootStore(unknown, 4));
  EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  detector.Observe(RootStore(unknown, 5));
  EXPECT_EQ(detector.verdict().state, SchemeState::kTokenMode);
  EXPECT_EQ(detector.verdict().reason,
            "no known scheme fits the stores, sha256, seed vllm-none-hash, unit 16 before");
  detector.Observe(RootStore({}, 6));
  ExpectScheme(detector, SchemeState::kMatched, {});
}

}  // namespace
}  // namespace kvcast
