// The rules of lookups and stores, without a scheduler, give the expected results.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "kvcast/offload/offload_params.h"
#include "kvcast/spec/offload_rules.h"

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

// `required` == 0: a scan of a prefix.
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

TEST(PrefixScan, ContinuesAfterARetryAndStopsAtAMiss) {
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

TEST(WindowScan, IsPendingIfTheScanMeetsAPendingChunk) {
  EXPECT_EQ(ScanOf("HHR", 2).result, std::nullopt);
  EXPECT_EQ(ScanOf("HPH", 2).result, std::nullopt);
  EXPECT_EQ(ScanOf("RHH", 2).result, 3);  // the scan ends before the pending chunk
}

TEST(StoreReachable, IsTrueForChunksThatALoadOnTheAlignmentCanNeed) {
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

// Lookup results as letters, by group, and the number of lookups of each group.
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

TEST(Lookup, OfAPlainGroupWithOneChunkAndAnEagleGroupWithThreeIsEmptyInVllm) {
  GroupSpec full{.block_size = 4};
  GroupSpec eagle{.block_size = 4, .eagle = true};
  Answers answers({"HMM", "HHH"});
  const auto as_vllm =
      OffloadLayout::Derive({.groups = {full, eagle}, .tokens_per_hash = 4, .compatible = true});
  EXPECT_EQ(Tokens(*as_vllm, 13, answers), 0);
  EXPECT_EQ(Tokens(Layout({full, eagle}), 13, answers), 4) << "EAGLE drops the second chunk";
}

// EAGLE drops chunk 2, so the prefix has two chunks. Group 1 ends the prefix there too. If chunk
// 3 of the EAGLE group is pending, group 1 shortens the prefix, and the lookup starts again. The
// new pass must still look up chunk 2, which lies behind the shorter prefix.
TEST(Lookup, OfAnEagleGroupIsNoShorterBecauseAnotherGroupWaits) {
  const GroupSpec eagle{.block_size = 4, .eagle = true};
  const GroupSpec state{.kind = SpecKind::kMamba, .block_size = 4, .mamba_mode = MambaMode::kAll};
  for (const char* const end : {"HHHM", "HHHP"}) {
    Answers answers({end, "HHMM"});
    EXPECT_EQ(Tokens(Layout({eagle, state}), 17, answers), 8) << end;
  }
}

TEST(Lookup, AShorterEndRepeatsTheScanOfAWindowButNotOfAFullGroup) {
  Answers answers({"HHHHHHHH", "MHHMMMHH", "HHHHMMMM"});
  // The narrow window shortens the prefix to 16 tokens. The wide window lacks a chunk before this
  // end, so the prefix becomes shorter again.
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}, Window(8), Window(4)}), 33, answers), 12);
  EXPECT_EQ(answers.calls[0], 8);
}

TEST(Lookup, OnlyFullGroupsMayAnswerAllOfAPrompt) {
  Answers full({"HHH"});
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}}), 12, full), 12);
  Answers window({"HHH"});
  EXPECT_EQ(Tokens(Layout({Window(8)}), 12, window), 11)
      << "with windows, the engine computes the last token";
}

OffloadLayout LikeVllm(OffloadLayout layout) {
  layout.compatible = true;
  return layout;
}

// The window has 24 tokens, and its chunks have 24 tokens. An end on a chunk boundary needs one
// chunk. An end at 36 tokens needs two chunks.
TEST(Lookup, AWindowLookupIncludesAllChunksThatItsLoadReads) {
  const GroupSpec full{.block_size = 4};
  GroupSpec window = Window(24);
  window.block_size = 24;
  const OffloadLayout layout = Layout({full, window});
  EXPECT_EQ(NeededChunks(layout.groups[1], 36), (ChunkRange{0, 2}));
  EXPECT_EQ(NeededChunks(layout.groups[1], 48), (ChunkRange{1, 2}));
  const auto tokens = [&](const OffloadLayout& rule, const char* of_window) {
    Answers answers({"HHHHHHHHHMMM", of_window});
    return Tokens(rule, 49, answers);
  };
  EXPECT_EQ(tokens(layout, "HH"), 36);
  EXPECT_EQ(tokens(layout, "HM"), 24);
  EXPECT_EQ(tokens(layout, "MH"), 0);
  EXPECT_EQ(tokens(LikeVllm(layout), "MH"), 36) << "the load of this hit is not possible";
}

TEST(Lookup, AWindowThatIsOneTokenLongerThanItsChunksNeedsNoMoreChunks) {
  const OffloadLayout layout = Layout({Window(9)});
  Answers answers({"MHH"});
  EXPECT_EQ(Tokens(layout, 13, answers), 12);
  EXPECT_EQ(Tokens(LikeVllm(layout), 13, answers), 0);
}

TEST(Lookup, TokensThatAWindowKeepsInAdditionAreLookedUp) {
  GroupSpec window = Window(8);
  window.extra_retained_tokens = 4;
  Answers answers({"MHH"});
  EXPECT_EQ(Tokens(Layout({window}), 13, answers), 0);
  Answers all({"HHH"});
  EXPECT_EQ(Tokens(Layout({window}), 13, all), 12);
}

TEST(Lookup, AtTheStartOfAnAttentionChunkNothingIsNeeded) {
  const GroupSpec chunked{
      .kind = SpecKind::kChunkedLocalAttention, .block_size = 4, .chunk_size = 16};
  Answers answers({"HHHHHH", "MMMMMM"});
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}, chunked}), 25, answers), 16);
  Answers beyond({"HHHHHH", "MMMMHM"});
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}, chunked}), 25, beyond), 20);
}

TEST(Lookup, AStateIsTheStateAtTheEndOfItsChunk) {
  const GroupSpec full{.block_size = 12};
  const GroupSpec mamba{.kind = SpecKind::kMamba, .block_size = 16, .mamba_mode = MambaMode::kAll};
  Answers answers({"HHHM", "HHH"});
  EXPECT_EQ(Tokens(Layout({full, mamba}), 49, answers), 32);
}

TEST(Lookup, WaitsOnlyForChunksThatTheAnswerNeeds) {
  Answers needed({"HHHHHH", "MMMHPM"});
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}, Window(8)}), 25, needed), std::nullopt);
  Answers not_needed({"HHHMMM", "MHHMPM"});
  EXPECT_EQ(Tokens(Layout({{.block_size = 4}, Window(8)}), 25, not_needed), 12);
}

// True if the computation of the token at position `end` reads the earlier token at position
// `token`.
bool IsSeen(const GroupSpec& spec, int64_t token, int64_t end) {
  if (spec.kind == SpecKind::kSlidingWindow) return token > end - spec.sliding_window;
  if (spec.kind == SpecKind::kChunkedLocalAttention) {
    return token / spec.chunk_size == end / spec.chunk_size;
  }
  return spec.kind != SpecKind::kMamba || token == end - 1;
}

bool CanBeLoaded(const OffloadGroup& group, const std::string& held, int64_t local, int64_t end) {
  const bool state = group.spec.kind == SpecKind::kMamba;
  if (state && end % group.tokens_per_chunk != 0) return false;
  for (int64_t token = local; token < end; ++token) {
    const int64_t chunk = token / group.tokens_per_chunk;
    if (!IsSeen(group.spec, token, end)) continue;
    if (chunk >= std::ssize(held) || held[static_cast<size_t>(chunk)] != 'H') return false;
  }
  return true;
}

class RandomLookups {
 public:
  explicit RandomLookups(uint64_t seed) : random_(seed) {}

  void Compare() {
    std::vector<GroupSpec> groups{{.block_size = 4 * Random(1, 4)}};
    for (int64_t i = Random(0, 3); i > 0; --i) groups.push_back(RandomWindow());
    const OffloadLayout layout = Layout(groups);
    const int64_t tokens = Random(1, 120);
    const int64_t local = Random(0, 2) > 0 ? 0 : Random(0, tokens / 48) * 48;
    Answers answers({});
    int64_t largest = 0;
    for (const OffloadGroup& group : layout.groups) {
      std::string& held = answers.groups.emplace_back();
      const int64_t rate = Random(1, 10);
      for (int64_t i = 0; i < tokens / group.tokens_per_chunk; ++i) {
        held += Random(0, 10) <= rate ? 'H' : 'M';
      }
      largest = std::max(largest, group.tokens_per_chunk);
    }
    const int64_t gain = LookupOffloaded(layout,
                                         {.num_tokens = tokens,
                                          .prompt_tokens = tokens,
                                          .local_tokens = local,
                                          .num_hashes = tokens / 4},
                                         answers.AsFunctions())
                             .tokens.value();
    int64_t end = tokens - (layout.has_windows() ? 1 : 0);
    const auto loads = [&] {
      for (size_t g = 0; g < layout.groups.size(); ++g) {
        if (!CanBeLoaded(layout.groups[g], answers.groups[g], local, end)) return false;
      }
      return true;
    };
    while (end > local && !loads()) --end;
    hits_ += gain > 0;
    // A load of less than a chunk is not worth its cost.
    if (gain == 0 && end - local < largest) return;
    EXPECT_EQ(gain, end - local) << tokens << " tokens";
  }
  int hits() const { return hits_; }

 private:
  int64_t Random(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }
  GroupSpec RandomWindow() {
    const int64_t kind = Random(0, 5);
    if (kind == 0) {
      return {.kind = SpecKind::kMamba, .block_size = 16, .mamba_mode = MambaMode::kAll};
    }
    GroupSpec spec{.block_size = 4 * Random(1, 6)};
    if (kind == 1) {
      spec.kind = SpecKind::kChunkedLocalAttention;
      spec.chunk_size = Random(1, 40);
      return spec;
    }
    spec.kind = SpecKind::kSlidingWindow;
    spec.sliding_window = Random(1, 60);
    return spec;
  }

  std::mt19937_64 random_;
  int hits_ = 0;
};

TEST(Lookup, IsTheLongestPrefixWhoseTokensCanAllBeLoaded) {
  RandomLookups lookups(1);
  for (int i = 0; i < 20000 && !::testing::Test::HasFailure(); ++i) lookups.Compare();
  EXPECT_GT(lookups.hits(), 3000);
}

// Looks up prefixes of 112, 96 and 80 tokens, which end inside the block after chunk 0. The groups
// are full attention and Mamba, with blocks of 64 tokens. `at_112`: the lookup result at 112
// tokens, one letter per group.
OffloadAnswer LookupBehindOneChunk(bool compatible, const std::string& at_112) {
  const GroupSpec full{.kind = SpecKind::kFullAttention, .block_size = 64};
  const GroupSpec state{
      .kind = SpecKind::kMamba, .block_size = 64, .mamba_mode = MambaMode::kAlign};
  const auto layout = OffloadLayout::Derive(
      {.groups = {full, state}, .tokens_per_hash = 16, .compatible = compatible});
  EXPECT_TRUE(layout.ok() && layout->supports_partial_tail);
  OffloadAnswers answers;
  answers.chunk = [](size_t, int64_t) { return LookupResult::kMiss; };
  answers.tail = [&](size_t group, int64_t boundary) {
    return boundary == 112 ? ParseLetter(at_112[group]) : LookupResult::kMiss;
  };
  return LookupOffloaded(
      *layout, {.num_tokens = 155, .prompt_tokens = 155, .local_tokens = 64, .num_hashes = 9},
      answers);
}

TEST(Lookup, OfAnEndInsideABlockWaitsOnlyIfEveryGroupWillHaveIt) {
  for (const bool compatible : {true, false}) {
    EXPECT_EQ(LookupBehindOneChunk(compatible, "HH").tokens, 48);
    EXPECT_EQ(LookupBehindOneChunk(compatible, "PH").tokens, std::nullopt);
    EXPECT_EQ(LookupBehindOneChunk(compatible, "HR").tokens, std::nullopt);
    EXPECT_EQ(LookupBehindOneChunk(compatible, "MP").tokens, 0);  // group 1 is not looked up
  }
}

TEST(Lookup, AsInVllmAnEndInsideABlockIsWaitedForAlthoughAnotherGroupLacksIt) {
  for (const char* answers : {"PM", "RM"}) {
    EXPECT_EQ(LookupBehindOneChunk(true, answers).tokens, std::nullopt);
    EXPECT_EQ(LookupBehindOneChunk(false, answers).tokens, 0);
  }
}

TEST(Layout, ErrorsNameTheWrongField) {
  const auto error = [](const OffloadLayoutConfig& config) {
    return OffloadLayout::Derive(config).status().message();
  };
  const GroupSpec full{.block_size = 16};
  EXPECT_THAT(error({}), HasSubstr("groups"));
  EXPECT_THAT(error({.groups = {full}, .tokens_per_hash = 0}), HasSubstr("tokens_per_hash"));
  EXPECT_THAT(error({.groups = {full}, .tokens_per_hash = 12}), HasSubstr("groups[0]: block_size"));
  EXPECT_THAT(error({.groups = {full}, .blocks_per_chunk = 0}), HasSubstr("blocks_per_chunk"));
  EXPECT_THAT(error({.groups = {full, {.kind = SpecKind::kSlidingWindow}}}),
              HasSubstr("groups[1]: sliding_window"));
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

TEST(Params, RefuseTextThatIsNoJsonObject) {
  for (const char* text : {"", "[]", "{", "7", "{\"a\":}"}) {
    EXPECT_EQ(ParseOffloadParams(text).status().code(), StatusCode::kMalformed) << text;
  }
}

}  // namespace
}  // namespace kvcast
