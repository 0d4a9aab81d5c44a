// The reader of v0.33 recordings reads every line, and skips no field that changes an answer.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/conformance/engine/scenario_replay.h"
#include "apps/conformance/router/router_replay.h"
#include "apps/conformance/router/told_properties.h"
#include "apps/conformance/scenario/scenario.h"

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;

// A list of one group must be written as a Json::array. Compilers disagree whether Json({x}) is a
// list or a copy of x.
Json ConfigLine(Json groups) {
  return {{"name", "test"},
          {"groups", std::move(groups)},
          {"num_blocks", 100},
          {"max_model_len", 1024},
          {"max_num_batched_tokens", 128},
          {"hash_block_size", 16},
          {"scheduler_block_size", 16},
          {"prefix_cache_retention_interval", nullptr},
          {"hash_algo", "sha256_cbor"},
          {"none_hash", std::string(64, 'a')},
          {"event_hashes", "int64"},
          {"event_encoding", "map"},
          {"event_layout", "vllm_l12"},
          {"extra_key_scheme", "tagged"},
          {"a_field_of_another_year", {1, 2}}};
}

const Json kFull = {{"kind", "full"}, {"block_size", 16}};

ScenarioConfig Parsed(const Json& line) {
  const auto config = ParseScenarioConfig(line.dump());
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ScenarioConfig();
}

std::string RefusalOf(const Json& line) {
  const auto config = ParseScenarioConfig(line.dump());
  return config.ok() ? "" : config.status().message();
}

ScenarioStep ParsedStep(Json ops, Json probes = Json::array(), Json events = Json::array()) {
  const Json line = {{"step", 0},
                     {"ops", std::move(ops)},
                     {"events", std::move(events)},
                     {"free_blocks", 100},
                     {"probes", std::move(probes)}};
  const auto step = ParseScenarioStep(line.dump());
  EXPECT_TRUE(step.ok()) << step.status().ToString();
  return step.ok() ? *step : ScenarioStep();
}

TEST(ScenarioReader, HashesMustBePairsOfHexDigits) {
  Json line = ConfigLine(Json::array({kFull}));
  line["none_hash"] = "0aF9";
  EXPECT_EQ(Parsed(line).none_hash, "\x0a\xf9");
  for (const char* const damaged : {"1", "0a1", "1g", "g1", "0x", "+1", " 1"}) {
    line["none_hash"] = damaged;
    EXPECT_NE(RefusalOf(line), "") << damaged;
  }
}

TEST(ScenarioReader, TheLayoutNamesTheRelease) {
  EXPECT_EQ(Parsed(ConfigLine(Json::array({kFull}))).cache.rules, EngineRules::kV033);
  Json older = ConfigLine(Json::array({kFull}));
  older.erase("event_layout");
  EXPECT_EQ(Parsed(older).cache.rules, EngineRules::kMain2026August);
}

TEST(ScenarioReader, TheChainsForm) {
  Json line = ConfigLine(Json::array({kFull}));
  line["hash_lookahead_tokens"] = 3;
  EXPECT_EQ(Parsed(line).chain_form, (ChainForm{ExtraKeyScheme::kTagged, 3}));
  line.erase("extra_key_scheme");
  line.erase("hash_lookahead_tokens");
  EXPECT_EQ(Parsed(line).chain_form, ChainForm());
}

TEST(ScenarioReader, UnknownFieldsThatChangeHashesAreRefused) {
  Json line = ConfigLine(Json::array({kFull}));
  line["extra_key_scheme"] = "sealed";
  EXPECT_NE(RefusalOf(line).find("extra_key_scheme"), std::string::npos);
  line["extra_key_scheme"] = "bare";
  line["hash_lookahead_tokens"] = 99;
  EXPECT_NE(RefusalOf(line).find("hash_lookahead_tokens"), std::string::npos);
  line["hash_lookahead_tokens"] = 0;
  line["embeds_rows"] = "rows of another make";
  EXPECT_NE(RefusalOf(line).find("embeds_rows"), std::string::npos);
  EXPECT_NE(
      RefusalOf(ConfigLine(Json::array({{{"kind", "spiral"}, {"block_size", 16}}}))).find("spiral"),
      std::string::npos);
}

TEST(ScenarioReader, GroupsOutsidePrefixCaching) {
  const Json window = {{"kind", "swa"},
                       {"block_size", 16},
                       {"window", 64},
                       {"prefix_cacheable", false},
                       {"prefix_replay_tokens", 64}};
  const Json ring = {{"kind", "ring"}, {"block_size", 24}, {"prefix_cacheable", false}};
  Json line = ConfigLine({kFull, window, ring});
  line["scheduler_block_size"] = 48;
  const ScenarioConfig config = Parsed(line);
  EXPECT_TRUE(TakesPart(config.cache.groups[0]));
  EXPECT_FALSE(TakesPart(config.cache.groups[1]));
  EXPECT_FALSE(TakesPart(config.cache.groups[2]));
  EXPECT_EQ(config.replay_tokens, 64);
  const auto told = ToldPropertiesOf(config);
  ASSERT_TRUE(told.ok()) << told.status().ToString();
  EXPECT_EQ(told->UncachedGroups(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(told->replay_tokens, 64);
}

TEST(ScenarioReader, OutputsOfSeveralTokensAndRollbacks) {
  const ScenarioStep step = ParsedStep({{{"op", "output"}, {"tokens", {{"r1", {5, 6}}, {"r2", 7}}}},
                                        {{"op", "rollback"}, {"tokens", {{"r1", 1}}}}});
  ASSERT_EQ(step.ops.size(), 2u);
  using Sampled = std::vector<std::pair<std::string, TokenId>>;
  EXPECT_EQ(step.ops[0].sampled, (Sampled{{"r1", 5}, {"r1", 6}, {"r2", 7}}));
  EXPECT_EQ(step.ops[1].kind, OpKind::kRollback);
}

TEST(ScenarioReader, AdaptersWithPathsAndEmbeddings) {
  const Json lora = {{"name", "a"}, {"id", 2}, {"path", "/a"}};
  const ScenarioStep step = ParsedStep({{{"op", "add"},
                                         {"req", "r1"},
                                         {"tokens", {0, 0}},
                                         {"n", 2},
                                         {"lora", lora},
                                         {"session", "s-1"},
                                         {"embeds", {1, 3}}}});
  const HashInputs& inputs = step.ops.at(0).prompt.inputs;
  EXPECT_EQ(inputs.lora_name, "a");
  EXPECT_EQ(inputs.lora_path, "/a");
  EXPECT_EQ(step.ops.at(0).prompt.session, "s-1");
  ASSERT_TRUE(inputs.prompt_embeddings.has_value());
  EXPECT_EQ(inputs.prompt_embeddings->row_bytes, 8u);
  // 1.0f, 0.5f, 3.0f, 1.5f
  EXPECT_EQ(inputs.prompt_embeddings->data,
            std::string("\0\0\x80\x3f\0\0\0\x3f\0\0\x40\x40\0\0\xc0\x3f", 16));
}

TEST(ScenarioReader, EventsWithSessionAndLookahead) {
  const Json stored = {{"type", "BlockStored"},
                       {"block_hashes", {7, 8}},
                       {"parent_block_hash", nullptr},
                       {"token_ids", {1, 2, 3, 4}},
                       {"block_size", 2},
                       {"session_id", "s"},
                       {"lookahead_token_ids", {{3}, {5}}}};
  const ScenarioStep step = ParsedStep(Json::array(), Json::array(), Json::array({stored}));
  const auto& event = std::get<BlockStored>(step.events.at(0));
  EXPECT_EQ(event.session_id, "s");
  EXPECT_EQ(event.lookahead, (LookaheadTokens{1, {3, 5}}));
}

TEST(ScenarioReader, ToldPropertiesOfARun) {
  Json eagle = kFull;
  eagle["eagle"] = true;
  const Json chunked = {{"kind", "chunked"}, {"block_size", 16}, {"chunk", 64}};
  Scenario scenario;
  scenario.config = Parsed(ConfigLine({eagle, chunked}));
  const auto prompt = [](const char* op, const char* path) {
    return Json{{"op", op}, {"req", "r"}, {"tokens", {1}},
                {"n", 1},   {"hit", 0},   {"lora", {{"name", "a"}, {"id", 1}, {"path", path}}}};
  };
  Json reports = prompt("add", "/one");
  reports["kv_cache_report_mode"] = "full";
  scenario.steps.push_back(
      ParsedStep(Json::array({reports}), Json::array({prompt("add", "/two")})));
  const auto told = ToldPropertiesOf(scenario);
  ASSERT_TRUE(told.ok()) << told.status().ToString();
  EXPECT_EQ(told->release, EngineRules::kV033);
  EXPECT_EQ(told->EagleGroups(), std::vector<int64_t>{0});
  EXPECT_EQ(told->ChunkSizes(), (std::map<int64_t, int64_t>{{1, 64}}));
  EXPECT_EQ(told->lora_paths.at("a"), (std::set<std::string>{"/one", "/two"}));
  EXPECT_EQ(told->hit_reports, HitReports::kExpected);
  EXPECT_EQ(told->alignment, 16);
  const WorkerConfig registration = RegistrationOf(*told, "w");
  EXPECT_EQ(registration.rules, EngineRules::kV033);
  EXPECT_EQ(registration.hit_reports, HitReports::kExpected);
}

// A probe's hit and its replay together are one check.
TEST(RouterReplay, AProbeWithAnotherReplayDiffers) {
  Json window = {{"kind", "swa"},
                 {"block_size", 16},
                 {"window", 16},
                 {"prefix_cacheable", false},
                 {"prefix_replay_tokens", 16}};
  const ScenarioConfig config = Parsed(ConfigLine({kFull, window}));
  auto hasher = BlockHasher::FromNoneHash(
      config.algorithm,
      {reinterpret_cast<const uint8_t*>(config.none_hash.data()), config.none_hash.size()});
  ASSERT_TRUE(hasher.ok());
  const std::vector<TokenId> tokens(33, 5);
  std::vector<Digest> chain;
  hasher->ExtendChain(tokens, 16, {}, chain, config.chain_form);
  BlockStored stored;
  for (const Digest& digest : chain) stored.block_hashes.push_back(ToEventHash(digest, {}));
  stored.token_ids = std::vector<TokenId>(32, 5);
  stored.block_size = 16;
  stored.group_idx = 0;
  stored.kv_cache_spec_kind = "full_attention";
  for (const int64_t replay : {16, 0}) {
    int equal = 0;
    int checks = 0;
    auto run = RouterReplay::Create(config, RegistrationOf(config).value(),
                                    [&](bool same, const std::string&) {
                                      ++checks;
                                      equal += same;
                                    });
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    ScenarioStep step = ParsedStep(
        Json::array(), {{{"tokens", tokens}, {"n", 33}, {"hit", 32}, {"replay", replay}}});
    step.events = {stored};
    run->RunStep(step);
    EXPECT_EQ(checks, 1);
    EXPECT_EQ(equal, replay == 16 ? 1 : 0);
  }
}

}  // namespace
}  // namespace kvcast::tools
