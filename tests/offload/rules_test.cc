// The pure rules of lookups and stores, row by row.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kvcast/offload_params.h"
#include "kvcast/offload_rules.h"

namespace kvcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LookupResult ParseLetter(char letter) {
  if (letter == 'H') return LookupResult::kHit;
  if (letter == 'P') return LookupResult::kPending;
  return letter == 'R' ? LookupResult::kRetry : LookupResult::kMiss;
}

struct Scan {
  std::optional<int64_t> result;
  int64_t calls = 0;
  friend bool operator==(const Scan&, const Scan&) = default;
};

// `required` 0: a scan of a prefix.
Scan ScanOf(const std::string& answers, int64_t required = 0) {
  Scan scan;
  const ChunkAnswer answer = [&](int64_t chunk) {
    ++scan.calls;
    return ParseLetter(answers.at(static_cast<size_t>(chunk)));
  };
  scan.result = required == 0 ? ScanPrefix(std::ssize(answers), answer)
                              : ScanWindow(std::ssize(answers), required, answer);
  return scan;
}

TEST(PrefixScan, CountsTheLeadingChunks) {
  EXPECT_EQ(ScanOf("HH").result, 2);
  EXPECT_EQ(ScanOf("MH").result, 0);
  EXPECT_EQ(ScanOf("HHM").result, 2);
}

TEST(PrefixScan, AsksOnBehindARetryAndStopsAtAMiss) {
  EXPECT_EQ(ScanOf("RH"), (Scan{std::nullopt, 2}));
  EXPECT_EQ(ScanOf("PMH"), (Scan{std::nullopt, 2}));
}

TEST(WindowScan, EndsAtTheLastRunThatIsLongEnough) {
  EXPECT_EQ(ScanOf("HH", 2).result, 2);
  EXPECT_EQ(ScanOf("MHH", 2).result, 3);
  EXPECT_EQ(ScanOf("MHHM", 2).result, 3);
  EXPECT_EQ(ScanOf("MHHMH", 2).result, 3);
  EXPECT_EQ(ScanOf("HHMHH", 2).result, 5);
  EXPECT_EQ(ScanOf("HMHHH", 1).result, 5);
}

TEST(WindowScan, FallsBackToAPrefixThatIsShorterThanTheWindow) {
  EXPECT_EQ(ScanOf("HHM", 3).result, 2);
  EXPECT_EQ(ScanOf("MHM", 3).result, 0);
  EXPECT_EQ(ScanOf("HMHHH", 4).result, 1);
}

TEST(WindowScan, IsPendingWhereAnythingOnTheWayIs) {
  EXPECT_EQ(ScanOf("HHR", 2).result, std::nullopt);
  EXPECT_EQ(ScanOf("HPH", 2).result, std::nullopt);
  EXPECT_EQ(ScanOf("RHH", 2).result, 3);  // not on the way
}

TEST(StoreReachable, IsWhatALoadOnTheAlignmentCanNeed) {
  struct Row {
    int64_t chunk, storable, alignment, window;
    bool eagle, expected;
  };
  for (const Row& row : std::vector<Row>{{61, 64, 64, 2, false, false},
                                         {62, 64, 64, 2, false, true},
                                         {60, 64, 64, 2, true, false},
                                         {61, 64, 64, 2, true, true},
                                         {45, 48, 64, 2, false, false},
                                         {46, 48, 64, 2, false, true},
                                         {44, 48, 64, 2, true, false},
                                         {45, 48, 64, 2, true, true},
                                         {76, 80, 64, 3, false, false},
                                         {77, 80, 64, 3, false, true},
                                         {0, 2, 64, 2, false, true}}) {
    OffloadGroup group;
    group.window_chunks = row.window;
    group.alignment_chunks = row.alignment;
    group.eagle = row.eagle;
    EXPECT_EQ(StoreReachable(group, row.chunk, row.storable), row.expected)
        << row.chunk << " of " << row.storable;
  }
  OffloadGroup free;
  free.window_chunks = 2;
  EXPECT_TRUE(StoreReachable(free, 0, 1));
}

// Letters by group, and how often each group was asked.
struct Answers {
  std::vector<std::string> groups;
  std::vector<int> calls = std::vector<int>(8, 0);

  OffloadAnswers AsFunctions() {
    return {.chunk = [this](size_t group, int64_t chunk) {
      ++calls[group];
      return ParseLetter(groups[group].at(static_cast<size_t>(chunk)));
    }};
  }
};

OffloadLayout Layout(std::vector<GroupSpec> groups) {
  const auto layout = OffloadLayout::Derive({.groups = std::move(groups), .tokens_per_hash = 4});
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return *layout;
}

GroupSpec Window(int64_t window, bool eagle = false) {
  return {
      .kind = SpecKind::kSlidingWindow, .block_size = 4, .sliding_window = window, .eagle = eagle};
}

std::optional<int64_t> Tokens(const OffloadLayout& layout, int64_t tokens, Answers& answers) {
  return LookupOffloaded(layout,
                         {.num_tokens = tokens, .prompt_tokens = tokens, .num_hashes = tokens / 4},
                         answers.AsFunctions())
      .tokens;
}

TEST(Lookup, OfAnEagleWindowAsksForOneChunkMore) {
  const OffloadLayout layout = Layout({Window(8, true)});
  for (const auto& [hits, expected] :
       std::vector<std::pair<int, int64_t>>{{4, 12}, {2, 4}, {3, 8}}) {
    std::string answers(4, 'M');
    for (int i = 0; i < hits; ++i) answers[static_cast<size_t>(i)] = 'H';
    Answers all({answers});
    EXPECT_EQ(Tokens(layout, 17, all), expected) << hits;
  }
}

TEST(Lookup, OfAPlainGroupWithOneChunkAndAnEagleGroupWithThreeIsNothing) {
  GroupSpec full{.block_size = 4};
  GroupSpec eagle{.block_size = 4, .eagle = true};
  Answers answers({"HMM", "HHH"});
  EXPECT_EQ(Tokens(Layout({full, eagle}), 13, answers), 0);
}

TEST(Lookup, AWindowThatLosesItsPlaceIsAskedAgainAndAFullGroupIsNot) {
  Answers answers({"HHHHHHHH", "MHHMMMHH", "HHHHMMMM"});
  // The narrow window pulls the end back to 16 tokens, where the wide one has none, and so on.
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}, Window(8), Window(4)}), 33, answers), 12);
  EXPECT_EQ(answers.calls[0], 8);
}

TEST(Lookup, OnlyFullGroupsMayAnswerAllOfAPrompt) {
  Answers full({"HHH"});
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}}), 12, full), 12);
  Answers window({"HHH"});
  EXPECT_EQ(Tokens(Layout({Window(8)}), 12, window), 11) << "the last chunk is needed for a part";
}

TEST(Layout, NamesWhatIsWrong) {
  const auto error = [](const OffloadLayoutConfig& config) {
    return OffloadLayout::Derive(config).status().message();
  };
  const GroupSpec full{.block_size = 16};
  EXPECT_THAT(error({}), HasSubstr("groups"));
  EXPECT_THAT(error({.groups = {full}, .tokens_per_hash = 0}), HasSubstr("tokens_per_hash"));
  EXPECT_THAT(error({.groups = {full}, .tokens_per_hash = 12}), HasSubstr("groups[0]: block_size"));
  EXPECT_THAT(error({.groups = {full}, .blocks_per_chunk = 0}), HasSubstr("blocks_per_chunk"));
  EXPECT_THAT(error({.groups = {full, {.kind = SpecKind::kSlidingWindow}}}),
              HasSubstr("groups[1]: window"));
  EXPECT_THAT(error({.groups = {{.kind = SpecKind::kCrossAttention}}}), HasSubstr("kind"));
  const GroupSpec mamba{
      .kind = SpecKind::kMamba, .block_size = 16, .mamba_mode = MambaMode::kAlign};
  GroupSpec larger = mamba;
  larger.block_size = 32;
  EXPECT_THAT(error({.groups = {mamba, larger}}), HasSubstr("groups[1]: Mamba"));
}

TEST(Layout, AWindowOfWindowChunksIsRoundedUp) {
  GroupSpec chunked{
      .kind = SpecKind::kChunkedLocalAttention, .block_size = 1024, .chunk_size = 8192};
  EXPECT_EQ(Layout({chunked}).groups[0].window_chunks, 8);
  chunked.block_size = 3000;
  EXPECT_EQ(Layout({chunked}).groups[0].window_chunks, 3);
}

TEST(Layout, DecodeContextParallelForbidsEndsInsideBlocks) {
  OffloadLayoutConfig config;
  config.groups = {{.block_size = 16},
                   {.kind = SpecKind::kMamba, .block_size = 16, .mamba_mode = MambaMode::kAlign}};
  config.tokens_per_hash = 4;
  EXPECT_TRUE(OffloadLayout::Derive(config)->supports_partial_tail);
  config.decode_context_parallel = 2;
  EXPECT_FALSE(OffloadLayout::Derive(config)->supports_partial_tail);
}

TEST(Params, TakeOnlyAWholeNumberOfTokens) {
  const auto tokens = [](const char* value) {
    return ParseOffloadParams(std::string("{\"max_offload_tokens\": ") + value + "}")
        ->max_offload_tokens;
  };
  EXPECT_EQ(tokens("24"), 24);
  EXPECT_EQ(tokens("0"), 0);
  for (const char* value :
       {"null", "\"24\"", "24.5", "24.0", "-1", "true", "1e30", "18446744073709551615", "[24]"}) {
    EXPECT_EQ(tokens(value), std::nullopt) << value;
  }
}

TEST(Params, ThatAreNoObjectAreRefused) {
  for (const char* text : {"", "[]", "{", "7", "{\"a\":}"}) {
    EXPECT_EQ(ParseOffloadParams(text).status().code(), StatusCode::kMalformed) << text;
  }
}

}  // namespace
}  // namespace kvcast
