// A challenge shows the hash scheme of an engine before its first store, and without token ids.
// Only the answer to the latest challenge is accepted.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/scheme_watch.h"

#include <gtest/gtest.h>

#include "kvcast/core/redact.h"
#include "kvcast/engine/chain_prover.h"
#include "kvcast/hash/chain_challenge.h"
#include "kvcast/wire/wire.h"
#include "tests/router/names/scheme_streams.h"

namespace kvcast::router {
namespace {

using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::EngineStream;
using kvcast::testing::HasherOf;
using kvcast::testing::RootStore;
using kvcast::testing::SchemeTokens;

std::vector<uint8_t> PayloadOf(const EventBatch& batch) {
  std::vector<uint8_t> payload;
  EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
  return payload;
}

struct SchemeWatchTest : ::testing::Test {
  static SchemeWatch Watching(const SchemeDetectorConfig& config) {
    return SchemeWatch(SchemeDetector::Create(config).value());
  }
  EventBatch AnswerTo(uint64_t nonce) const {
    CacheConfig config;
    config.groups = {GroupSpec{.block_size = 64}, GroupSpec{.block_size = 32}};
    config.num_blocks = 100;
    config.hash_block_size = scheme.hash_block_size;
    config.chain_form = scheme.chain;
    const auto prover = ChainProver::Create(config, HasherOf(scheme), {.hash_form = scheme.form});
    EXPECT_TRUE(prover.ok()) << prover.status().ToString();
    return prover.ok() ? (*prover)->Answer(nonce) : EventBatch();
  }
  bool Take(const EventBatch& answer) { return watch.TakeAnswer(PayloadOf(answer)).has_value(); }
  SchemeState state() const { return watch.verdict().state; }

  EngineScheme scheme{.algorithm = HashAlgorithm::kXxhash, .seed = "42"};
  SchemeWatch watch = Watching({});
};

TEST_F(SchemeWatchTest, AnAnswerShowsTheSchemeWithoutAnyStore) {
  for (const auto algorithm : {HashAlgorithm::kSha256, HashAlgorithm::kXxhashCbor}) {
    for (const auto keys : {ExtraKeyScheme::kBare, ExtraKeyScheme::kTagged}) {
      for (const int64_t lookahead : {0, 1}) {
        scheme.algorithm = algorithm;
        scheme.chain = {keys, lookahead};
        watch = Watching({});
        ASSERT_TRUE(watch.WantsChallenge());
        ASSERT_TRUE(Take(AnswerTo(watch.BeginChallenge())));
        EXPECT_FALSE(watch.WantsChallenge());
        EXPECT_EQ(state(), SchemeState::kMatched);
        EXPECT_EQ(watch.verdict().scheme->algorithm, algorithm);
        EXPECT_EQ(watch.verdict().scheme->hash_block_size, 16);
        HashInputs inputs;
        const auto plain = ProvenForm(watch.verdict(), inputs);
        ASSERT_TRUE(plain) << WhyUnprovenForm(watch.verdict(), inputs);
        EXPECT_EQ(plain->lookahead, lookahead);
        inputs.cache_salt = "tenant";
        inputs.mm_items = {{"image", 3, 4}};
        EXPECT_EQ(ProvenForm(watch.verdict(), inputs), (ChainForm{keys, lookahead}))
            << WhyUnprovenForm(watch.verdict(), inputs);
        EXPECT_EQ(watch.counters().contradictions, 0u);
      }
    }
  }
}

TEST_F(SchemeWatchTest, StoresWithoutTokensLeaveTheSchemeAsItIs) {
  EventBatch stores;
  stores.events = EngineStream(scheme, {GroupSpec{.block_size = 16}});
  Redact(stores);
  for (int i = 0; i < 4; ++i) watch.Observe(stores);
  EXPECT_EQ(state(), SchemeState::kTokenMode) << "no store shows the scheme";
  ASSERT_TRUE(Take(AnswerTo(watch.BeginChallenge())));
  EXPECT_EQ(state(), SchemeState::kMatched);
  for (int i = 0; i < 4; ++i) watch.Observe(stores);
  EXPECT_EQ(state(), SchemeState::kMatched);
}

// The engine had no salted prompt and no image yet, so it could not show how it hashes these keys.
TEST_F(SchemeWatchTest, WithoutTokensAnotherChallengeAsksForTheOtherKindsOfKey) {
  EventBatch stores{.events = {RootStore(scheme, 1)}};
  const auto answer = [&](size_t kinds) {
    EventBatch all = AnswerTo(watch.BeginChallenge());
    all.events.resize(kinds);
    return Take(all);
  };
  ASSERT_TRUE(answer(1));
  watch.Observe(stores);
  EXPECT_FALSE(watch.WantsChallenge()) << "the stores have tokens, so they show the other kinds";
  Redact(stores);
  watch.Observe(stores);
  EXPECT_TRUE(watch.WantsChallenge());
  HashInputs salted;
  salted.cache_salt = "tenant";
  ASSERT_TRUE(answer(2));
  EXPECT_TRUE(ProvenForm(watch.verdict(), salted));
  EXPECT_TRUE(watch.WantsChallenge());
  ASSERT_TRUE(answer(3));
  EXPECT_FALSE(watch.WantsChallenge());
}

TEST_F(SchemeWatchTest, AnAnswerThatContradictsTheRegistrationIsAMismatch) {
  watch = Watching({.algorithm = HashAlgorithm::kSha256, .seed = "42"});
  ASSERT_TRUE(Take(AnswerTo(watch.BeginChallenge())));
  EXPECT_EQ(state(), SchemeState::kMismatch);
}

// The operator did not configure the seed of the engine.
TEST_F(SchemeWatchTest, AnAnswerOfAnUnknownSeedShowsNoScheme) {
  scheme.seed = "a secret of the engine";
  ASSERT_TRUE(Take(AnswerTo(watch.BeginChallenge())));
  EXPECT_NE(state(), SchemeState::kMatched);
  EXPECT_FALSE(ProvenForm(watch.verdict(), {}));
}

TEST_F(SchemeWatchTest, TheStoresStillContradictAWrongAnswer) {
  ASSERT_TRUE(Take(AnswerTo(watch.BeginChallenge())));
  scheme.seed = "0";
  EventBatch stores;
  for (int64_t i = 0; i < 64; ++i) stores.events.emplace_back(RootStore(scheme, i));
  watch.Observe(stores);
  EXPECT_GT(watch.counters().contradictions, 0u);
  EXPECT_EQ(watch.verdict().scheme->seed, "0");
}

TEST_F(SchemeWatchTest, OnlyTheAnswerToTheLatestChallengeIsAccepted) {
  EXPECT_FALSE(Take(AnswerTo(1))) << "there was no challenge";
  const uint64_t first = watch.BeginChallenge();
  const uint64_t second = watch.BeginChallenge();
  EXPECT_NE(first, second);
  EXPECT_FALSE(Take(AnswerTo(first)));
  EXPECT_FALSE(Take(AnswerTo(second))) << "a challenge has one answer";
  EXPECT_EQ(watch.challenges().sent, 2u);
  EXPECT_EQ(watch.challenges().rejected, 3u);
  EXPECT_EQ(watch.challenges().answered, 0u);
  EXPECT_TRUE(watch.WantsChallenge());
  EXPECT_EQ(watch.counters().stores, 0u) << "a rejected answer shows nothing";
}

TEST_F(SchemeWatchTest, OtherAnswersAreRejected) {
  const auto rejected = [&](auto change) {
    EventBatch answer = AnswerTo(watch.BeginChallenge());
    change(answer, std::get<BlockStored>(answer.events[1]));
    return !Take(answer);
  };
  EXPECT_TRUE(rejected([](auto& batch, auto&) { batch.events.clear(); }));
  EXPECT_TRUE(rejected([](auto& batch, auto&) { batch.events.emplace_back(AllBlocksCleared()); }));
  EXPECT_TRUE(rejected([](auto& batch, auto&) { batch.events.resize(17, batch.events[0]); }));
  EXPECT_TRUE(rejected([](auto&, auto& store) { store.medium = kMediumCpu; }));
  EXPECT_TRUE(
      rejected([](auto&, auto& store) { store.parent_block_hash = BlockHash::FromUnsigned(1); }));
  EXPECT_TRUE(rejected([](auto&, auto& store) { store.token_ids->at(15) ^= 1; }));
  EXPECT_TRUE(rejected([](auto&, auto& store) { store.token_ids.emplace(); }));
  EXPECT_TRUE(rejected([](auto&, auto& store) {
    store.block_hashes.clear();
    store.extra_keys->clear();
  }));
  EXPECT_FALSE(rejected([](auto&, auto&) {}));
  watch.Restart();
  watch.BeginChallenge();
  EXPECT_FALSE(watch.TakeAnswer(std::vector<uint8_t>{0xff, 0x00}));
}

// The hashes of the restarted engine have never fitted, so they contradict nothing.
TEST_F(SchemeWatchTest, ARestartForgetsTheContradiction) {
  watch = Watching({.sample_period = 1});
  HashInputs inputs;
  inputs.cache_salt = "tenant";
  const auto observe = [&](int64_t n, bool fits) {
    BlockStored salted = DenseStore(scheme, SchemeTokens(16, 1000 * n), 0, 1, 16, inputs);
    if (!fits) salted.token_ids->at(3) ^= 1;
    watch.Observe(EventBatch{.events = {salted}});
  };
  watch.Observe(EventBatch{.events = {RootStore(scheme, 1)}});
  observe(2, true);
  EXPECT_FALSE(watch.is_contradicted());
  observe(3, false);
  EXPECT_TRUE(watch.is_contradicted());
  watch.Restart();
  EXPECT_FALSE(watch.is_contradicted());
  watch.Observe(EventBatch{.events = {RootStore(scheme, 4)}});
  observe(5, false);
  EXPECT_EQ(watch.verdict().of(KeyKind::kSalt).proof, KeyProof::kRefuted);
  EXPECT_FALSE(watch.is_contradicted());
  observe(6, true);
  observe(7, false);
  EXPECT_TRUE(watch.is_contradicted());
  EXPECT_EQ(watch.counters().kinds[static_cast<size_t>(KeyKind::kSalt)].contradictions, 2u);
}

TEST_F(SchemeWatchTest, ARestartForgetsTheAnswer) {
  const uint64_t nonce = watch.BeginChallenge();
  const EventBatch answer = AnswerTo(nonce);
  ASSERT_TRUE(Take(answer));
  watch.Restart();
  EXPECT_TRUE(watch.WantsChallenge());
  EXPECT_EQ(state(), SchemeState::kUnknown);
  EXPECT_FALSE(Take(answer)) << "an answer from before the restart";
}

}  // namespace
}  // namespace kvcast::router
