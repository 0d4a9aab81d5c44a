// A store that announces only some blocks of its span proves a scheme if the hashes of these blocks
// occur in order.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kvcast/router/scheme_detector.h"
#include "tests/router/names/scheme_streams.h"

namespace kvcast {
namespace {

using testing::Announcing;
using testing::DenseStore;
using testing::EngineScheme;
using testing::SchemeTokens;

SchemeDetector SpanDetector(uint64_t period = 1) {
  SchemeDetectorConfig config;
  config.sample_period = period;
  config.lora_paths = {{"sql", "/adapters/sql"}};
  return SchemeDetector::Create(config).value();
}

// Returns a store whose span is the first 32 blocks of prompt number `n`. The store announces only
// the blocks `announced`.
BlockStored Span(const EngineScheme& engine, int64_t n, const std::vector<size_t>& announced,
                 const HashInputs& inputs = {}) {
  const auto tokens = SchemeTokens(33 * 16, 10000 * n);
  return Announcing(DenseStore(engine, tokens, 0, 32, 16, inputs), announced);
}

const std::vector<size_t> kTail = {28, 29, 30, 31};

TEST(SchemeSpans, FirstStoreOfAWindowProvesTheScheme) {
  for (const int64_t lookahead : {0, 1, 3}) {
    for (const int64_t hash_block_size : {16, 8}) {
      const EngineScheme engine{.algorithm = HashAlgorithm::kSha256Cbor,
                                .seed = "42",
                                .hash_block_size = hash_block_size,
                                .chain = {ExtraKeyScheme::kTagged, lookahead}};
      SchemeDetector detector = SpanDetector();
      detector.Observe(Span(engine, 1, kTail));
      ASSERT_EQ(detector.verdict().state, SchemeState::kMatched)
          << lookahead << " " << hash_block_size;
      EXPECT_EQ(detector.verdict().scheme->hash_block_size, hash_block_size);
      EXPECT_EQ(detector.verdict().scheme->seed, "42");
      EXPECT_TRUE(ProvenForm(detector.verdict(), {}));
      EXPECT_EQ(detector.verdict().lookahead, lookahead);
    }
  }
}

TEST(SchemeSpans, AnnouncedBlocksMayHaveGapsAndTheSpanMayGoOn) {
  for (const std::vector<size_t>& announced :
       {std::vector<size_t>{0}, {5}, {0, 31}, {3, 4, 9, 20}, {31}}) {
    SchemeDetector detector = SpanDetector();
    detector.Observe(Span({.chain = {.lookahead = 1}}, 1, announced));
    EXPECT_EQ(detector.verdict().state, SchemeState::kMatched);
  }
}

TEST(SchemeSpans, HashesOutOfOrderProveNothing) {
  SchemeDetector detector = SpanDetector();
  BlockStored store = Span({}, 1, kTail);
  std::swap(store.block_hashes[1], store.block_hashes[2]);
  detector.Observe(Event(store));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
  EXPECT_EQ(detector.counters().inconclusive, 1u);
  store = Span({}, 1, kTail);
  store.block_hashes[3] = Span({.seed = "0"}, 1, kTail).block_hashes[3];
  detector.Observe(Event(store));
  EXPECT_EQ(detector.verdict().state, SchemeState::kUnknown);
}

TEST(SchemeSpans, ChunksAreFollowedFromOneToTheNext) {
  const auto tokens = SchemeTokens(65 * 16, 1);
  SchemeDetector detector = SpanDetector();
  detector.Observe(Announcing(DenseStore({}, tokens, 0, 32), kTail));
  detector.Observe(Announcing(DenseStore({}, tokens, 32, 64), kTail));
  EXPECT_EQ(detector.counters().matched, 2u);
}

TEST(SchemeSpans, AdapterAndSaltOfTheFirstBlockAreRead) {
  const EngineScheme engine{.chain = {ExtraKeyScheme::kTagged, 0}};
  HashInputs inputs;
  inputs.lora_name = "sql";
  inputs.lora_path = "/adapters/sql";
  SchemeDetector detector = SpanDetector();
  detector.Observe(Span(engine, 1, kTail, inputs));
  EXPECT_EQ(detector.verdict().of(KeyKind::kLora).proof, KeyProof::kTagged);
  inputs.cache_salt = "tenant";
  detector.Observe(Span(engine, 2, {0, 30, 31}, inputs));
  EXPECT_EQ(detector.verdict().of(KeyKind::kSalt).proof, KeyProof::kTagged);
  EXPECT_EQ(detector.counters().matched, 2u);
}

// If the first block is not announced, no event contains its salt. The store is then neither a
// proof nor a contradiction.
TEST(SchemeSpans, KeysOfBlocksThatWereNotAnnouncedProveNothing) {
  HashInputs salted;
  salted.cache_salt = "tenant";
  SchemeDetector detector = SpanDetector();
  detector.Observe(Span({}, 1, kTail));
  for (int64_t n = 2; n < 7; ++n) detector.Observe(Span({}, n, kTail, salted));
  EXPECT_EQ(detector.counters().inconclusive, 5u);
  EXPECT_EQ(detector.counters().contradictions, 0u);
  EXPECT_EQ(detector.verdict().of(KeyKind::kPlain).proof, KeyProof::kProven);
  EXPECT_EQ(detector.verdict().of(KeyKind::kSalt).proof, KeyProof::kUnproven);
}

TEST(SchemeSpans, ItemsOfIncompleteSpansAreNotRead) {
  HashInputs image;
  image.mm_items = {{"image", 460, 20}};
  SchemeDetector detector = SpanDetector();
  detector.Observe(Span({}, 1, kTail, image));
  EXPECT_EQ(detector.counters().skipped[static_cast<size_t>(SchemeSkip::kUnresolvedKeys)], 1u);
}

// If a stream has only incomplete spans, too many misses revoke the proof, and the next fit
// restores it.
TEST(SchemeSpans, MissesRevokeTheProofIfNoCompleteStoreFits) {
  SchemeDetector detector = SpanDetector();
  detector.Observe(Span({}, 1, kTail));
  for (uint64_t n = 0; n < kSchemeMissesToGiveUp; ++n) {
    EXPECT_EQ(detector.verdict().of(KeyKind::kPlain).proof, KeyProof::kProven);
    detector.Observe(Span({.seed = "unknown"}, static_cast<int64_t>(n) + 2, kTail));
  }
  EXPECT_EQ(detector.verdict().of(KeyKind::kPlain).proof, KeyProof::kUnproven);
  EXPECT_EQ(detector.verdict().of(KeyKind::kPlain).reason,
            "stores with incomplete token spans do not fit the scheme");
  detector.Observe(Span({}, 30, kTail));
  EXPECT_EQ(detector.verdict().of(KeyKind::kPlain).proof, KeyProof::kProven);
}

TEST(SchemeSpans, CompleteStoresLeaveIncompleteSpansUntested) {
  SchemeDetector detector = SpanDetector();
  detector.Observe(DenseStore({}, SchemeTokens(64, 1), 0, 4));
  const uint64_t hashes = detector.counters().hashes;
  for (int64_t n = 2; n < 30; ++n) detector.Observe(Span({.seed = "unknown"}, n, kTail));
  EXPECT_EQ(detector.counters().hashes, hashes);
  EXPECT_EQ(detector.verdict().of(KeyKind::kPlain).proof, KeyProof::kProven);
}

TEST(SchemeSpans, UnknownSchemesCostABoundedSearchNowAndThen) {
  SchemeDetector detector = SpanDetector(64);
  for (int64_t n = 0; n < 64 * 4; ++n) detector.Observe(Span({.seed = "unknown"}, n, kTail));
  EXPECT_EQ(detector.verdict().state, SchemeState::kTokenMode);
  EXPECT_LE(detector.counters().tested, kSchemeMissesToGiveUp + 4);
  EXPECT_LE(detector.counters().hashes,
            detector.counters().tested * (kMaxSpanSearch + static_cast<uint64_t>(kMaxTestedUnits)));
}

TEST(SchemeSpans, LongerSpansThanTheBoundAreSkipped) {
  const int64_t blocks = kMaxTestedUnits + 1;
  const auto tokens = SchemeTokens((blocks + 1) * 16, 1);
  SchemeDetector detector = SpanDetector();
  detector.Observe(Announcing(DenseStore({}, tokens, 0, blocks), {3}));
  EXPECT_EQ(detector.counters().skipped[static_cast<size_t>(SchemeSkip::kSparse)], 1u);
}

}  // namespace
}  // namespace kvcast
