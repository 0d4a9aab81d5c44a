// The rules of lookups and stores, without a scheduler, follow vLLM's connector from v0.32 on.
// Several tests show that earlier releases lack a rule.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "kvcast/offload/offload_params.h"
#include "kvcast/spec/offload_rules.h"

namespace kvcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LookupResult LetterOf(char letter) {
  if (letter == 'H') return LookupResult::kHit;
  if (letter == 'P') return LookupResult::kPending;
  return letter == 'R' ? LookupResult::kRetry : LookupResult::kMiss;
}

GroupSpec FullOf(int64_t block_size, bool eagle = false) {
  return {.kind = SpecKind::kFullAttention, .block_size = block_size, .eagle = eagle};
}
GroupSpec WindowOf(int64_t window, int64_t block_size, bool eagle = false) {
  return {.kind = SpecKind::kSlidingWindow,
          .block_size = block_size,
          .sliding_window = window,
          .eagle = eagle};
}

struct Options {
  EngineRules rules = EngineRules::kV033;
  bool compatible = true;
  bool speculative_eagle = false;
  std::optional<int64_t> retention_interval;
};

Result<OffloadLayout> Derived(std::vector<GroupSpec> groups, const Options& options = {}) {
  return OffloadLayout::Derive({.groups = std::move(groups),
                                .tokens_per_hash = 4,
                                .speculative_eagle = options.speculative_eagle,
                                .compatible = options.compatible,
                                .rules = options.rules,
                                .retention_interval = options.retention_interval});
}

OffloadAnswer Ask(const OffloadLayout& layout, const std::vector<std::string>& held, int64_t tokens,
                  std::optional<int64_t> max_load = std::nullopt, int64_t local = 0) {
  OffloadAnswers answers;
  answers.chunk = [&](size_t group, int64_t chunk) {
    const std::string& letters = held[group];
    return chunk < std::ssize(letters) ? LetterOf(letters[static_cast<size_t>(chunk)])
                                       : LookupResult::kMiss;
  };
  return LookupOffloaded(layout,
                         {.num_tokens = tokens,
                          .prompt_tokens = tokens,
                          .local_tokens = local,
                          .num_hashes = tokens / 4,
                          .max_load_tokens = max_load},
                         answers);
}

TEST(Eligible, GroupsOutsidePrefixCachingAreLeftOutAndTheOthersKeepTheirIndex) {
  GroupSpec scratch = WindowOf(8, 4);
  scratch.prefix_cacheable = false;
  const auto layout = Derived({scratch, FullOf(4), WindowOf(8, 4)});
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  ASSERT_EQ(layout->groups.size(), 2u);
  EXPECT_EQ(layout->groups[0].index, GroupIdx(1));
  EXPECT_EQ(layout->groups[1].index, GroupIdx(2));
  EXPECT_EQ(layout->configured_groups, 3);
  EXPECT_EQ(Derived({scratch, FullOf(4)}, {EngineRules::kMain2026August})->groups.size(), 2u);
  EXPECT_THAT(Derived({scratch}).status().ToString(), HasSubstr("no group takes part"));
}

TEST(Eligible, AScratchGroupNeedNotFitTheHashUnit) {
  GroupSpec scratch = FullOf(3);
  scratch.prefix_cacheable = false;
  EXPECT_TRUE(Derived({scratch, FullOf(4)}).ok());
  EXPECT_FALSE(Derived({scratch, FullOf(4)}, {EngineRules::kMain2026August}).ok());
}

TEST(WindowChunks, CountTheTokensThatAWindowKeepsInAddition) {
  struct Row {
    int64_t window, extra, expected;
  };
  // max(ceil(w / 4), ceil((w - 1 + extra) / 4))
  for (const Row& row : std::vector<Row>{{8, 0, 2}, {8, 1, 2}, {8, 2, 3}, {9, 0, 3}, {7, 6, 3}}) {
    GroupSpec spec = WindowOf(row.window, 4);
    spec.extra_retained_tokens = row.extra;
    EXPECT_EQ(Derived({spec})->groups[0].window_chunks, row.expected) << row.window;
  }
}

TEST(WindowChunks, GrowByThePaddingOfAnEndInsideAChunk) {
  const OffloadGroup group = Derived({WindowOf(8, 4)})->groups[0];  // a token reads 7 before it
  EXPECT_EQ(LoadWindowChunks(group, 16), 2);
  EXPECT_EQ(LoadWindowChunks(group, 15), 2);  // 7 + 1 tokens
  EXPECT_EQ(LoadWindowChunks(group, 14), 3);  // 7 + 2
  EXPECT_EQ(LoadWindowChunks(group, 13), 3);
}

TEST(LoadWindow, AnEndInsideAChunkNeedsOneChunkMore) {
  // Full attention has chunks of 1 block, so it can end at any block. The window's chunks have 8
  // tokens.
  const auto layout = Derived({FullOf(4), WindowOf(8, 8)});
  EXPECT_EQ(Ask(*layout, {"HHHHH", "HH"}, 21).tokens, 16);  // a chunk end: one chunk is enough
  EXPECT_EQ(Ask(*layout, {"HHHM", "MH"}, 17).tokens, 0);    // 12 needs 7 + 4 tokens: two chunks
  EXPECT_EQ(Ask(*layout, {"HHHM", "HH"}, 17).tokens, 12);
  const auto before = Derived({FullOf(4), WindowOf(8, 8)}, {EngineRules::kMain2026August});
  EXPECT_EQ(Ask(*before, {"HHHM", "MH"}, 17).tokens, 12) << "a hit that cannot be loaded";
}

TEST(LoadWindow, AnotherLoadIsWaitedForAtItsWholeWidth) {
  // 12 tokens end inside the window's chunk 1. The load also reads chunk 0, but releases before
  // v0.32 do not look up chunk 0.
  const auto asks = [](EngineRules rules) {
    const auto layout = Derived({FullOf(4), WindowOf(8, 8)}, {rules});
    OffloadAnswers answers;
    answers.chunk = [](size_t group, int64_t chunk) {
      return group == 1 || chunk < 3 ? LookupResult::kHit : LookupResult::kMiss;
    };
    answers.being_loaded = [](size_t group, int64_t chunk) { return group == 1 && chunk == 0; };
    return LookupOffloaded(*layout, {.num_tokens = 17, .prompt_tokens = 17, .num_hashes = 4},
                           answers)
        .tokens;
  };
  EXPECT_EQ(asks(EngineRules::kV033), std::nullopt);
  EXPECT_EQ(asks(EngineRules::kMain2026August), 12);
}

std::optional<int64_t> ScanOf(const std::string& letters, int64_t required, int64_t at_end) {
  return ScanLoadWindow(std::ssize(letters), required, at_end,
                        [&](int64_t i) { return LetterOf(letters[static_cast<size_t>(i)]); });
}

TEST(LoadWindow, OnlyThePendingChunksOfTheWindowThatIsFoundAreWaitedFor) {
  EXPECT_EQ(ScanOf("HHMPM", 2, 2), 2);
  EXPECT_EQ(ScanOf("HHMPH", 2, 2), std::nullopt);
  EXPECT_EQ(ScanOf("PHMPM", 2, 2), std::nullopt);
  EXPECT_EQ(ScanOf("PM", 2, 2), std::nullopt);  // a prefix
  EXPECT_EQ(ScanOf("MP", 2, 2), 0);
  EXPECT_EQ(ScanOf("HHR", 2, 2), std::nullopt);  // the run may get longer
}

TEST(LoadWindow, ARunAtTheEndNeedsMoreThanOneBefore) {
  EXPECT_EQ(ScanOf("MHH", 2, 3), 0);
  EXPECT_EQ(ScanOf("HHH", 2, 3), 3);
  EXPECT_EQ(ScanOf("HHMHH", 2, 3), 2);
  EXPECT_EQ(ScanOf("HH", 3, 4), 2);  // the caller has the earlier chunks
}

TEST(LoadWindow, EqualsTheLastWindowOfASearchFromEveryEnd) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string letters(random() % 12, ' ');
    for (char& letter : letters) letter = "HHHHMPR"[random() % 7];
    const auto required = static_cast<int64_t>(1 + random() % 4);
    const int64_t at_end = required + static_cast<int64_t>(random() % 2);
    const auto size = std::ssize(letters);
    std::optional<int64_t> expected;
    for (int64_t end = size; end >= 0; --end) {
      const int64_t begin = std::max<int64_t>(0, end - (end == size ? at_end : required));
      const std::string window(letters, static_cast<size_t>(begin),
                               static_cast<size_t>(end - begin));
      if (window.find_first_of("MR") != std::string::npos) continue;
      const std::string asked(letters, static_cast<size_t>(begin));
      const bool waits =
          window.find('P') != std::string::npos || asked.find('R') != std::string::npos;
      if (!waits) expected = end;
      break;
    }
    ASSERT_EQ(ScanOf(letters, required, at_end), expected) << letters << " " << required;
  }
}

// Tries every end, longest first. Full attention must have all chunks, and a window must have the
// chunks of LoadWindowChunks.
TEST(LoadWindow, TheLookupIsTheLongestEndThatEveryGroupCanLoad) {
  std::mt19937 random(11);
  const auto below = [&](uint32_t bound) { return static_cast<int64_t>(random() % bound); };
  int hits = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<GroupSpec> groups = {FullOf(4 * (1 + below(4)))};
    for (int64_t i = below(3); i > 0; --i) {
      groups.push_back(WindowOf(1 + below(50), 4 * (1 + below(5))));
      groups.back().extra_retained_tokens = below(3) * below(6);
    }
    const OffloadLayout layout = *Derived(groups);
    const int64_t tokens = 1 + below(110);
    std::vector<std::string> held;
    int64_t largest = 0;
    for (const OffloadGroup& group : layout.groups) {
      std::string& letters = held.emplace_back();
      const int64_t rate = 1 + below(10);
      for (int64_t i = 0; i < tokens / group.tokens_per_chunk; ++i) {
        letters += below(11) <= rate ? 'H' : 'M';
      }
      largest = std::max(largest, group.tokens_per_chunk);
    }
    const auto loads = [&](int64_t end) {
      for (size_t g = 0; g < held.size(); ++g) {
        const OffloadGroup& group = layout.groups[g];
        const int64_t chunks = (end + group.tokens_per_chunk - 1) / group.tokens_per_chunk;
        if (chunks > std::ssize(held[g])) return false;
        int64_t first = 0;
        if (group.window_chunks) {
          const int64_t pad = chunks * group.tokens_per_chunk - end;
          const int64_t window = group.spec.sliding_window;
          const int64_t seen = std::max(window, window - 1 + group.spec.extra_retained_tokens);
          const int64_t needed =
              std::max(seen, window - 1 + group.spec.extra_retained_tokens + pad);
          first = std::max<int64_t>(0, chunks - CeilDiv(needed, group.tokens_per_chunk));
        }
        for (int64_t i = first; i < chunks; ++i) {
          if (held[g][static_cast<size_t>(i)] != 'H') return false;
        }
      }
      return true;
    };
    int64_t end = tokens - (layout.has_windows() ? 1 : 0);
    while (end > 0 && !loads(end)) --end;
    const int64_t gain = Ask(layout, held, tokens).tokens.value();
    hits += gain > 0;
    if (gain == 0 && end < largest) continue;  // a load of less than a chunk is not worth its cost
    ASSERT_EQ(gain, end) << tokens << " tokens";
  }
  EXPECT_GT(hits, 3000);
}

TEST(Eagle, AFullGroupLooksUpOneChunkAfterThePrefix) {
  // The window has no draft head and ends the prefix at 8. The full group drops chunk 2, not chunk
  // 1.
  const std::vector<std::string> held = {"HHHH", "HHMM"};
  const std::vector<GroupSpec> groups = {FullOf(4, true), WindowOf(8, 4)};
  EXPECT_EQ(Ask(*Derived(groups), held, 17).tokens, 8);
  EXPECT_EQ(Ask(*Derived({FullOf(4, true)}), {"HHH"}, 13).tokens, 8);
  EXPECT_EQ(Ask(*Derived({FullOf(4, true)}), {"HHHM"}, 13, 8).tokens, 8);
  EXPECT_EQ(
      Ask(*Derived({FullOf(4, true)}, {EngineRules::kMain2026August}), {"HHHM"}, 13, 8).tokens, 4);
}

TEST(Eagle, UnflaggedGroupsHaveADraftHeadOnlyWithOlderRules) {
  EXPECT_FALSE(Derived({FullOf(4)}, {.speculative_eagle = true})->groups[0].eagle);
  const Options before{.rules = EngineRules::kMain2026August, .speculative_eagle = true};
  EXPECT_TRUE(Derived({FullOf(4)}, before)->groups[0].eagle);
}

TEST(Eagle, TheLastChunkOfAFinishedRequestIsStorable) {
  const OffloadGroup group = Derived({FullOf(4, true)})->groups[0];
  EXPECT_EQ(StorableChunks(group, 1, 16, 8, 10, false), 3);
  EXPECT_EQ(StorableChunks(group, 1, 16, 8, 10, true), 4);
}

TEST(MaxLoadTokens, EndThePrefixBetweenChunks) {
  const auto layout = Derived({FullOf(8), FullOf(4)});
  const std::vector<std::string> held = {"HHHH", "HHHHHHHH"};
  for (const auto& [most, expected] : std::vector<std::pair<std::optional<int64_t>, int64_t>>{
           {std::nullopt, 32}, {INT64_MAX, 32}, {32, 32}, {31, 24}, {20, 16}, {7, 0}, {0, 0}}) {
    EXPECT_EQ(Ask(*layout, held, 33, most).tokens, expected) << most.value_or(-1);
  }
  EXPECT_EQ(Ask(*layout, held, 33, 12, 8).tokens, 8);  // limit 20 (8 + 12), rounded down to 16
}

TEST(MaxLoadTokens, AreAWholeNumberOrAbsent) {
  EXPECT_EQ(ParseOffloadParams(R"({"max_load_tokens": 24})")->max_load_tokens, 24);
  EXPECT_EQ(ParseOffloadParams(R"({"max_load_tokens": 0})")->max_load_tokens, 0);
  for (const char* bad : {"-1", "24.5", "true", "\"24\"", "null"}) {
    const std::string json = std::string(R"({"max_load_tokens": )") + bad + "}";
    EXPECT_EQ(ParseOffloadParams(json)->max_load_tokens, std::nullopt) << bad;
  }
}

// The chunks that are kept among the first `storable` chunks.
std::vector<int64_t> Kept(const OffloadLayout& layout, size_t group, int64_t storable,
                          const StoreScope& scope = {.prompt_tokens = 1000}, int64_t begin = 0) {
  std::vector<bool> keep;
  FillStoreMask(layout, group, begin, storable, scope, keep);
  std::vector<int64_t> kept;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) kept.push_back(begin + static_cast<int64_t>(i));
  }
  return kept;
}

TEST(StoreMask, KeepsTheWindowBeforeEveryChunkOfFullAttentionAndBeforeTheEnd) {
  const auto layout = Derived({FullOf(16), WindowOf(8, 4)});
  EXPECT_THAT(Kept(*layout, 1, 8), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(Kept(*layout, 1, 11), ElementsAre(2, 3, 6, 7, 9, 10));
  EXPECT_THAT(Kept(*layout, 1, 11, {.prompt_tokens = 1000}, 7), ElementsAre(7, 9, 10));
  EXPECT_THAT(Kept(*layout, 0, 3), ElementsAre(0, 1, 2));
}

TEST(StoreMask, OfADraftHeadReachesOneChunkPastTheBoundaryAndKeepsNoEnd) {
  const auto layout = Derived({FullOf(16), WindowOf(8, 4, true)});
  EXPECT_THAT(Kept(*layout, 1, 11), ElementsAre(2, 3, 4, 6, 7, 8, 10));  // only 10 of 10..12 exists
}

TEST(StoreMask, WithoutFullAttentionTheLargestChunkIsTheGrid) {
  const auto layout = Derived({WindowOf(4, 16), WindowOf(8, 4)});
  EXPECT_EQ(layout->store_alignment, 16);
  EXPECT_THAT(Kept(*layout, 1, 8), ElementsAre(2, 3, 6, 7));
  const auto before = Derived({WindowOf(4, 16), WindowOf(8, 4)}, {EngineRules::kMain2026August});
  EXPECT_EQ(Kept(*before, 1, 8).size(), 8u);
}

TEST(StoreMask, OfFullAttentionInSeveralChunkSizesKeepsAll) {
  EXPECT_EQ(Kept(*Derived({FullOf(16), FullOf(8), WindowOf(8, 4)}), 2, 8).size(), 8u);
}

TEST(StoreMask, ByARetentionIntervalKeepsItsMultiplesAndTheBoundaries) {
  const std::vector<GroupSpec> groups = {FullOf(16), WindowOf(8, 4)};
  const auto none = Derived(groups, {.retention_interval = 0});
  // The prompt without its last token has 3 chunks of full attention: 48 tokens. The shared prefix
  // of 40 tokens has 2 chunks: 32 tokens.
  EXPECT_THAT(Kept(*none, 1, 14, {.prompt_tokens = 57}), ElementsAre(10, 11));
  EXPECT_THAT(Kept(*none, 1, 14, {.prompt_tokens = 57, .shared_prefix_boundary = 40}),
              ElementsAre(6, 7, 10, 11));
  const auto some = Derived(groups, {.retention_interval = 32});
  EXPECT_THAT(Kept(*some, 1, 18, {.prompt_tokens = 57}), ElementsAre(6, 7, 10, 11, 14, 15));
}

TEST(StoreMask, ARetentionIntervalIsAMultipleOfTheWindowsChunks) {
  const std::vector<GroupSpec> groups = {FullOf(16), WindowOf(8, 12)};
  EXPECT_TRUE(Derived(groups, {.retention_interval = 36}).ok());
  EXPECT_THAT(Derived(groups, {.retention_interval = 32}).status().ToString(),
              HasSubstr("groups[1]: retention_interval"));
  EXPECT_FALSE(Derived(groups, {.retention_interval = -12}).ok());
  EXPECT_TRUE(
      Derived(groups, {.rules = EngineRules::kMain2026August, .retention_interval = 32}).ok());
}

// Full attention with a draft head, and Mamba states, in blocks of 16 tokens. `end`: letters of
// both groups at the boundary 56. `bridge`: letter of the full-attention chunk before that
// boundary.
OffloadAnswer AskForTail(EngineRules rules, const std::string& end, char bridge,
                         int64_t tokens = 60, bool being_loaded = false) {
  const GroupSpec state{
      .kind = SpecKind::kMamba, .block_size = 16, .mamba_mode = MambaMode::kAlign};
  const auto layout = Derived({FullOf(16, true), state}, {.rules = rules, .compatible = false});
  OffloadAnswers answers;
  answers.chunk = [&](size_t group, int64_t chunk) {
    return group == 0 && chunk == 2 ? LetterOf(bridge) : LookupResult::kMiss;
  };
  answers.tail = [&](size_t group, int64_t boundary) {
    const int64_t margin = group == 0 ? 4 : 0;
    return boundary == 56 + margin ? LetterOf(end[group]) : LookupResult::kMiss;
  };
  answers.being_loaded = [&](size_t, int64_t chunk) { return being_loaded && chunk == 2; };
  return LookupOffloaded(
      *layout,
      {.num_tokens = tokens, .prompt_tokens = tokens, .local_tokens = 32, .num_hashes = tokens / 4},
      answers);
}

TEST(TailBesideADraftHead, LiesUpToTwoBlocksBehindTheChunks) {
  const auto v033 = EngineRules::kV033;
  EXPECT_EQ(AskForTail(v033, "HH", 'H').tokens, 24);
  EXPECT_EQ(AskForTail(v033, "HH", 'H').tail_boundary, 56);
  EXPECT_EQ(AskForTail(v033, "HH", 'H', 59).tokens, 0)
      << "the tokens that the head reads have no hash";
  EXPECT_EQ(AskForTail(v033, "MH", 'H').tokens, 0);
  EXPECT_EQ(AskForTail(v033, "HM", 'H').tokens, 0);
  EXPECT_EQ(AskForTail(EngineRules::kV032, "HH", 'H').tokens, 0) << "v0.32 stores no such end";
}

TEST(TailBesideADraftHead, NeedsTheChunkBetween) {
  const auto v033 = EngineRules::kV033;
  EXPECT_EQ(AskForTail(v033, "HH", 'M').tokens, 0);
  EXPECT_EQ(AskForTail(v033, "HH", 'P').tokens, std::nullopt);
  EXPECT_EQ(AskForTail(v033, "HP", 'H').tokens, std::nullopt);
  EXPECT_EQ(AskForTail(v033, "HH", 'H', 60, true).tokens, std::nullopt)
      << "another request loads it";
  EXPECT_EQ(AskForTail(v033, "MM", 'P').tokens, 0) << "no end needs the chunk";
}

}  // namespace
}  // namespace kvcast
