// ReusableWithOffload predicts the tokens that recorded lookups of the engine's own connector
// found. The test compares only the cases that are decided by the residency of the blocks alone: no
// transfer in flight, no hit inside a chunk, no decode context parallelism, no Mamba mode "none".
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/support/file.h"
#include "kvcast/router/prefix_index.h"
#include "router/rules/offload_reuse.h"
#include "tests/support/recordings.h"

namespace kvcast::router {
namespace {

using Json = nlohmann::json;

GroupSpec SpecOf(const Json& group) {
  GroupSpec spec;
  const std::string kind = group.at("kind");
  spec.block_size = group.at("block_size");
  spec.eagle = group.value("eagle", false);
  if (kind == "swa") {
    spec.kind = SpecKind::kSlidingWindow;
    spec.sliding_window = group.at("window");
  } else if (kind == "chunked") {
    spec.kind = SpecKind::kChunkedLocalAttention;
    spec.chunk_size = group.at("chunk");
  } else if (kind == "mamba") {
    spec.kind = SpecKind::kMamba;
  } else if (kind == "mla") {
    spec.kind = SpecKind::kMlaAttention;
  }
  return spec;
}

bool DecidedByResidency(const Json& config, const Json& recorded) {
  if (config.contains("dcp")) return false;
  for (const Json& group : config.at("groups")) {
    // The group keeps one running state, which no other request can use.
    if (group.value("mode", "") == "none") return false;
  }
  if (recorded.at("result").is_null() || recorded.contains("being_loaded") ||
      recorded.contains("partial_tail_boundary"))
    return false;
  return std::all_of(
      recorded.at("answers").begin(), recorded.at("answers").end(), [](const Json& answers) {
        return answers.get<std::string>().find_first_not_of("HM") == std::string::npos;
      });
}

int64_t Predict(const Json& config, const Json& recorded) {
  const int64_t hash_block_size = config.at("tokens_per_hash");
  const int64_t tokens = recorded.at("num_tokens");
  const OffloadQuery query{.hash_block_size = hash_block_size,
                           .units = tokens / hash_block_size,
                           .prompt_tokens = tokens,
                           .local_tokens = recorded.at("local"),
                           .blocks_per_chunk = config.at("blocks_per_chunk")};
  std::vector<GroupResidency> groups;
  bool full_kinds_only = true;
  for (size_t g = 0; g < config.at("groups").size(); ++g) {
    GroupResidency& group = groups.emplace_back();
    group.spec = SpecOf(config.at("groups")[g]);
    group.spec.eagle |= config.value("speculative_eagle", false);
    full_kinds_only = full_kinds_only && IsFullKind(group.spec.kind);
    group.blocks.Resize(tokens / group.spec.block_size);
    const std::string answers = recorded.at("answers")[g];
    for (size_t chunk = 0; chunk < answers.size(); ++chunk) {
      const int64_t last = (static_cast<int64_t>(chunk) + 1) * query.blocks_per_chunk - 1;
      if (answers[chunk] == 'H' && last < group.blocks.size()) group.blocks.Set(last);
    }
  }
  OffloadQuery asked = query;
  asked.full_kinds_only = full_kinds_only;
  return ReusableWithOffload(groups, asked).tokens;
}

// The full-attention group has chunks of 4 tokens. The window group has a window of 8 tokens and
// chunks of 8 tokens. A prefix of 12 tokens ends inside the second chunk of the window group. The
// window of the next token begins in the first chunk.
int64_t Reusable(EngineRules rules, OffloadRule rule, bool first_window_chunk) {
  std::vector<GroupResidency> groups(2);
  groups[0].spec = {.kind = SpecKind::kFullAttention, .block_size = 4};
  groups[0].blocks.Resize(4);
  for (int64_t i = 0; i < 3; ++i) groups[0].blocks.Set(i);
  groups[1].spec = {.kind = SpecKind::kSlidingWindow, .block_size = 8, .sliding_window = 8};
  groups[1].blocks.Resize(2);
  if (first_window_chunk) groups[1].blocks.Set(0);
  groups[1].blocks.Set(1);
  return ReusableWithOffload(groups, {.hash_block_size = 4,
                                      .units = 4,
                                      .prompt_tokens = 17,
                                      .compatible = rule == OffloadRule::kConnector,
                                      .rules = rules})
      .tokens;
}

TEST(OffloadLookup, FollowsTheReleaseOfTheWorker) {
  const auto august = EngineRules::kMain2026August;
  EXPECT_EQ(Reusable(august, OffloadRule::kConnector, false), 12)
      << "counted, although the window cannot be loaded";
  EXPECT_EQ(Reusable(EngineRules::kV033, OffloadRule::kConnector, false), 0);
  EXPECT_EQ(Reusable(august, OffloadRule::kOffloadScheduler, false), 0);
  for (const auto rules : {august, EngineRules::kV033}) {
    for (const auto rule : {OffloadRule::kConnector, OffloadRule::kOffloadScheduler}) {
      EXPECT_EQ(Reusable(rules, rule, true), 12);
    }
  }
}

void ExpectRecordedLookups(const std::string& file) {
  const auto content = tools::ReadFile(file);
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  std::map<int64_t, Json> configs;
  int compared = 0;
  int gains = 0;
  for (const std::string_view line : tools::SplitLines(*content)) {
    const Json record = Json::parse(line);
    if (!record.contains("cfg")) continue;
    if (record.contains("groups")) configs[record.at("cfg")] = record;
    if (!record.contains("num_tokens")) continue;
    const Json& config = configs.at(record.at("cfg"));
    if (!DecidedByResidency(config, record)) continue;
    const int64_t tokens = record.at("num_tokens");
    const int64_t local = record.at("local");
    // The engine computes the last token even if all of the prompt can be loaded.
    const int64_t served = std::min(local + record.at("result").get<int64_t>(), tokens - 1);
    ++compared;
    gains += served > local;
    EXPECT_EQ(Predict(config, record), std::max(local, served)) << line.substr(0, 300) << config;
  }
  std::cout << compared << " lookups compared, " << gains << " of them load\n";
  EXPECT_GT(compared, 1000);
  EXPECT_GT(gains, 300);
}

TEST(OffloadLookup, EqualsTheRecordedLookupsOfTheConnector) {
  for (const testing::RecordingSet& set : testing::RecordingSets("offload/lookup")) {
    ExpectRecordedLookups(set.folder + "/lookup-cases.jsonl.gz");
  }
}

}  // namespace
}  // namespace kvcast::router
