// The answer to a challenge has the stores that the engine itself would publish for these prompts.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/engine/chain_prover.h"

#include "kvcast/hash/chain_challenge.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr uint64_t kNonce = 0xfeedfacecafebeef;
constexpr std::string_view kSeed = "a seed";

// Returns the part of a store that belongs to its first block.
BlockStored FirstBlock(BlockStored stored, int64_t lookahead) {
  stored.block_hashes.resize(1);
  stored.token_ids->resize(static_cast<size_t>(stored.block_size));
  stored.extra_keys->resize(1);
  if (stored.lookahead) stored.lookahead->token_ids.resize(static_cast<size_t>(lookahead));
  stored.kv_cache_spec_kind.reset();
  stored.kv_cache_spec_sliding_window.reset();
  return stored;
}

// The first block of `group` in the events of an engine that computes the prompt of the challenge.
BlockStored OwnStore(const CacheConfig& config, const EventOptions& options,
                     HashAlgorithm algorithm, HashInputs inputs, size_t group) {
  TestEngine engine(config, options, algorithm, kSeed);
  const int64_t tokens = 256 + config.chain_form.lookahead;
  CacheRequest request = Request("0", ChallengeTokens(kNonce, static_cast<size_t>(tokens)));
  request.hash_inputs = std::move(inputs);
  engine.Start(request);
  for (const Event& event : engine.cache().TakeEvents()) {
    const auto* const stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || stored->group_idx != static_cast<int64_t>(group)) continue;
    return FirstBlock(*stored, config.chain_form.lookahead);
  }
  ADD_FAILURE() << "the engine published no store of the group";
  return {};
}

EventBatch AnswerOf(const CacheConfig& config, const EventOptions& options,
                    HashAlgorithm algorithm) {
  auto prover =
      ChainProver::Create(config, BlockHasher::FromSeed(algorithm, kSeed).value(), options);
  EXPECT_TRUE(prover.ok()) << prover.status().ToString();
  return (*prover)->Answer(kNonce);
}

// `units`: hash units in a block of the group.
void ExpectOwnStores(const CacheConfig& config, const EventOptions& options,
                     HashAlgorithm algorithm, size_t group, int64_t units = 1) {
  const EventBatch answer = AnswerOf(config, options, algorithm);
  const std::string text = ChallengeText(kNonce);
  const int64_t unit = config.groups[group].block_size / units;
  std::vector<HashInputs> prompts(3);
  prompts[1].cache_salt = text;
  prompts[2].mm_items = {{.identifier = text, .offset = 0, .length = unit}};
  if (config.chain_form.extra_keys == ExtraKeyScheme::kBare) {
    prompts.emplace_back().lora_name = text;
  }
  ASSERT_EQ(answer.events.size(), prompts.size());
  EXPECT_EQ(std::get<BlockStored>(answer.events[0]),
            OwnStore(config, options, algorithm, prompts[0], group));
  // The other stores are those of an engine whose block size is one hash unit.
  CacheConfig of_units = Config({Full(unit)}, config.num_blocks);
  of_units.chain_form = config.chain_form;
  for (size_t i = 1; i < prompts.size(); ++i) {
    BlockStored own = OwnStore(of_units, options, algorithm, prompts[i], 0);
    own.group_idx = static_cast<int64_t>(group);
    EXPECT_EQ(std::get<BlockStored>(answer.events[i]), own) << i;
  }
}

TEST(ChainProver, AnswersWithTheStoresOfTheEngineItself) {
  for (const auto algorithm : {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                               HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor}) {
    for (const auto form : {EventHashForm::kInt64, EventHashForm::kBytes}) {
      for (const auto keys : {ExtraKeyScheme::kBare, ExtraKeyScheme::kTagged}) {
        for (const int64_t lookahead : {0, 1, 3}) {
          CacheConfig config = Config({Full()}, 50);
          config.chain_form = {keys, lookahead};
          ExpectOwnStores(config, {.hash_form = form}, algorithm, 0);
        }
      }
    }
  }
}

// The answer has a store of a block that the engine itself could publish. Only such a block proves
// the hash_block_size.
TEST(ChainProver, TheBlockIsABlockOfTheGroupWithTheSmallestBlocks) {
  CacheConfig config = Config({Full(64), Full(32)}, 50);
  config.hash_block_size = 8;
  ExpectOwnStores(config, {}, HashAlgorithm::kSha256, 1, /*units=*/4);
}

// A window that is computed again after a hit has no events. Its blocks may be smaller than a hash
// unit.
TEST(ChainProver, GroupsOutsidePrefixCachingDoNotCount) {
  GroupSpec replayed = Window(16, 4);
  replayed.prefix_cacheable = false;
  CacheConfig config = Config({Full(16), replayed}, 200);
  config.rules = EngineRules::kV033;
  config.hash_block_size = 16;
  config.replay_tokens = 16;
  ExpectOwnStores(config, {}, HashAlgorithm::kSha256, 0);
}

// Without caching, a hash unit is the least common multiple of the block sizes.
TEST(ChainProver, WithoutCachingTheBlockIsAHashUnit) {
  CacheConfig config = Config({Full(16), Full(32)}, 50);
  config.enable_caching = false;
  const EventBatch answer = AnswerOf(config, {}, HashAlgorithm::kSha256);
  ASSERT_EQ(answer.events.size(),
            AnswerOf(Config({Full(32)}, 50), {}, HashAlgorithm::kSha256).events.size());
  EXPECT_EQ(std::get<BlockStored>(answer.events[0]),
            OwnStore(Config({Full(32)}, 50), {}, HashAlgorithm::kSha256, {}, 0));
}

TEST(ChainProver, EachNonceHasItsOwnAnswer) {
  auto prover = ChainProver::Create(
      Config({Full()}, 50), BlockHasher::FromSeed(HashAlgorithm::kXxhash, kSeed).value(), {});
  ASSERT_TRUE(prover.ok());
  const auto hash = [&](uint64_t nonce) {
    return std::get<BlockStored>((*prover)->Answer(nonce).events[0]).block_hashes[0];
  };
  EXPECT_EQ(hash(1), hash(1));
  EXPECT_NE(hash(1), hash(2));
}

TEST(ChainProver, AConfigWithoutGroupsIsAnError) {
  const auto prover = ChainProver::Create(
      Config({}, 50), BlockHasher::FromSeed(HashAlgorithm::kXxhash, kSeed).value(), {});
  EXPECT_EQ(prover.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvcast::engine
