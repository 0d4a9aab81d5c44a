// SchemeProver answers a challenge like the engine itself. The answer has only the kinds of key
// that the engine's own stores prove.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/scheme_prover.h"

#include <gtest/gtest.h>

#include "kvcast/engine/chain_prover.h"
#include "tests/router/names/scheme_streams.h"

namespace kvcast::router {
namespace {

using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::HasherOf;
using kvcast::testing::RootStore;
using kvcast::testing::SchemeTokens;

constexpr uint64_t kNonce = 0xfeedfacecafebeef;

// The answer of the engine, which knows its configuration.
std::vector<Event> OwnAnswer(const EngineScheme& scheme, std::vector<int64_t> block_sizes = {16}) {
  CacheConfig config;
  for (const int64_t size : block_sizes) config.groups.push_back(GroupSpec{.block_size = size});
  config.num_blocks = 100;
  config.hash_block_size = scheme.hash_block_size;
  config.chain_form = scheme.chain;
  const auto prover = ChainProver::Create(config, HasherOf(scheme), {.hash_form = scheme.form});
  EXPECT_TRUE(prover.ok()) << prover.status().ToString();
  std::vector<Event> events = (*prover)->Answer(kNonce).events;
  for (Event& event : events) std::get<BlockStored>(event).group_idx = 0;
  return events;
}

struct SchemeProverTest : ::testing::Test {
  static std::unique_ptr<SchemeProver> Made(const SchemeDetectorConfig& config = {}) {
    return SchemeProver::Create(config).value();
  }
  void See(const Event& event) {
    const EventBatch batch{.events = {event}};
    prover->Observe(&batch);
  }
  // The engine stores a prompt with these inputs.
  void Store(const HashInputs& inputs = {}) {
    const auto prompt = SchemeTokens(64, 1000 * ++prompts);
    See(DenseStore(scheme, prompt, 0, 3, 16, inputs));
  }
  void StoreEachKind() {
    HashInputs salted;
    salted.cache_salt = "tenant";
    HashInputs image;
    image.mm_items = {{"image", 3, 4}};
    HashInputs adapter;
    adapter.lora_name = "adapter";
    adapter.lora_path = "/adapter";
    for (const HashInputs& inputs : {HashInputs(), salted, image, adapter}) Store(inputs);
  }
  std::vector<Event> Answer() { return prover->Answer(kNonce).events; }

  EngineScheme scheme;
  std::unique_ptr<SchemeProver> prover = Made();
  int64_t prompts = 0;
};

TEST_F(SchemeProverTest, AnswersAsTheEngineItself) {
  for (const auto algorithm : {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                               HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor}) {
    for (const auto form : {EventHashForm::kInt64, EventHashForm::kBytes}) {
      for (const auto keys : {ExtraKeyScheme::kBare, ExtraKeyScheme::kTagged}) {
        for (const int64_t lookahead : {0, 1, 3}) {
          scheme = {.algorithm = algorithm, .seed = "0", .form = form, .chain = {keys, lookahead}};
          // The prover knows the path, but no event can show the path.
          prover = Made({.lora_paths = {{"adapter", "/adapter"}}});
          StoreEachKind();
          EXPECT_EQ(Answer(), OwnAnswer(scheme)) << HashAlgorithmName(algorithm) << " "
                                                 << ExtraKeySchemeName(keys) << " " << lookahead;
        }
      }
    }
  }
}

TEST_F(SchemeProverTest, BeforeAProofThereIsNoAnswer) {
  EXPECT_TRUE(Answer().empty());
  BlockStored without_tokens = RootStore(scheme, 1);
  without_tokens.token_ids.emplace();
  See(without_tokens);
  See(AllBlocksCleared());
  EXPECT_TRUE(Answer().empty());
  // Behind the root, bytes show the algorithm and the unit, but not the seed.
  scheme.form = EventHashForm::kBytes;
  for (int64_t i = 0; i < 4; ++i) See(DenseStore(scheme, SchemeTokens(64, 1000 * i), 1, 3));
  EXPECT_TRUE(Answer().empty());
  Store();
  EXPECT_EQ(Answer().size(), 1u);
}

TEST_F(SchemeProverTest, OnlyProvenKindsOfKeyAreAnswered) {
  scheme.chain.extra_keys = ExtraKeyScheme::kTagged;
  const auto own = OwnAnswer(scheme);
  Store();
  EXPECT_EQ(Answer(), std::vector<Event>(own.begin(), own.begin() + 1));
  HashInputs inputs;
  inputs.cache_salt = "tenant";
  Store(inputs);
  EXPECT_EQ(Answer(), std::vector<Event>(own.begin(), own.begin() + 2));
  inputs.mm_items = {{"image", 3, 4}};
  Store(inputs);
  EXPECT_EQ(Answer(), own);
}

// Every answer starts with the store without keys.
TEST_F(SchemeProverTest, BlocksOfAnAdapterAloneProveNoAnswer) {
  HashInputs adapter;
  adapter.lora_name = "adapter";
  Store(adapter);
  EXPECT_TRUE(Answer().empty());
  Store();
  EXPECT_EQ(Answer().size(), 2u);
}

TEST_F(SchemeProverTest, TheFirstStoreIsABlockOfTheSmallestSize) {
  scheme.hash_block_size = 8;
  const auto prompt = SchemeTokens(128, 1000);
  HashInputs salted;
  salted.cache_salt = "tenant";
  BlockStored elsewhere = DenseStore(scheme, prompt, 0, 2, 8);
  elsewhere.medium = kMediumCpu;
  for (const int64_t size : {64, 32, 64}) {
    See(DenseStore(scheme, prompt, 0, 2, size));
    See(DenseStore(scheme, prompt, 0, 1, size, salted));
    See(elsewhere);
  }
  const auto answer = Answer();
  const auto own = OwnAnswer(scheme, {64, 32});
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0], own[0]);
  EXPECT_EQ(answer[1], own[1]);
  EXPECT_EQ(std::get<BlockStored>(answer[0]).block_size, 32);
  EXPECT_EQ(std::get<BlockStored>(answer[1]).block_size, 8);
}

TEST_F(SchemeProverTest, AStoreThatContradictsTheSchemeEndsTheProof) {
  Store();
  ASSERT_FALSE(Answer().empty());
  const EngineScheme before = scheme;
  scheme.seed = "a secret of another engine";
  See(AllBlocksCleared());  // the next store is tested
  Store();
  EXPECT_TRUE(Answer().empty());
  for (int i = 0; i < 100; ++i) Store();
  EXPECT_TRUE(Answer().empty());
  scheme = before;
  for (int i = 0; i < 100; ++i) Store();
  EXPECT_FALSE(Answer().empty());
}

TEST_F(SchemeProverTest, ANewSchemeIsAnsweredInPlaceOfTheOldOne) {
  Store();
  scheme = {.algorithm = HashAlgorithm::kXxhashCbor,
            .seed = "42",
            .hash_block_size = 8,
            .form = EventHashForm::kBytes};
  See(AllBlocksCleared());
  Store();
  EXPECT_EQ(Answer(), std::vector<Event>{OwnAnswer(scheme, {16, 32})[0]});
}

TEST_F(SchemeProverTest, ABatchOfUnknownContentEndsTheProof) {
  StoreEachKind();
  ASSERT_EQ(Answer().size(), 4u);
  prover->Observe(nullptr);
  EXPECT_TRUE(Answer().empty());
  Store();
  EXPECT_EQ(Answer().size(), 1u);
}

TEST_F(SchemeProverTest, ASecretSeedIsACandidateIfItIsGiven) {
  scheme.seed = "a secret";
  Store();
  EXPECT_TRUE(Answer().empty());
  SchemeDetectorConfig config;
  config.seeds.emplace_back("a secret");
  prover = Made(config);
  Store();
  EXPECT_EQ(Answer(), std::vector<Event>{OwnAnswer(scheme)[0]});
}

TEST_F(SchemeProverTest, TooManySeedsAreAnError) {
  SchemeDetectorConfig config;
  config.seeds.resize(kMaxSchemeSeeds + 1, "x");
  EXPECT_EQ(SchemeProver::Create(config).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::router
