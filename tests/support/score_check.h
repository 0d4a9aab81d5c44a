// Compares PrefixIndex::Scores, and queries by integer hashes, with the answers of Match for the
// same query.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "kvcast/router/prefix_index.h"

namespace kvcast::testing {

// `matches`: the result of index.Match(prompt).
inline void ExpectScoresAre(const std::vector<WorkerScore>& scores, const PromptBlocks& prompt,
                            const std::vector<WorkerMatch>& matches) {
  auto score = scores.begin();
  for (const WorkerMatch& match : matches) {
    if (match.gpu_tokens == 0) continue;
    ASSERT_NE(score, scores.end());
    EXPECT_EQ(score->worker, match.worker);
    EXPECT_EQ(score->gpu_tokens, match.gpu_tokens);
    const bool hidden =
        prompt.hashes.empty() && prompt.integer_hashes.empty() && match.unnamed_gpu > 0;
    EXPECT_EQ(score->exact, match.certain && !match.ambiguous && match.unknown == 0 && !hidden);
    ++score;
  }
  EXPECT_EQ(score, scores.end());
}

// If all hashes of the prompt are unsigned integers, a query by integer_hashes must have the same
// answers.
inline void ExpectSameByIntegers(const PrefixIndex& index, PromptBlocks prompt,
                                 const std::vector<WorkerMatch>& matches,
                                 std::span<const WorkerId> workers) {
  std::vector<uint64_t> integers;
  for (const BlockHash& hash : prompt.hashes) {
    if (hash.form() != BlockHash::Form::kUnsigned) return;
    integers.push_back(hash.integer());
  }
  prompt.hashes = {};
  prompt.integer_hashes = integers;
  const std::vector<WorkerMatch> same = index.Match(prompt, workers);
  ASSERT_EQ(same.size(), matches.size());
  for (size_t i = 0; i < same.size(); ++i) {
    EXPECT_EQ(same[i].worker, matches[i].worker);
    EXPECT_EQ(same[i].gpu_tokens, matches[i].gpu_tokens);
    EXPECT_EQ(same[i].with_cpu_tokens, matches[i].with_cpu_tokens);
    EXPECT_EQ(same[i].with_storage_tokens, matches[i].with_storage_tokens);
    EXPECT_EQ(same[i].unnamed_units, matches[i].unnamed_units);
  }
  ExpectScoresAre(index.Scores(prompt, workers), prompt, matches);
}

// `matches`: the result of index.Match(prompt, workers). No batch may be applied between the
// queries.
inline void ExpectScoresOf(const PrefixIndex& index, const PromptBlocks& prompt,
                           const std::vector<WorkerMatch>& matches,
                           std::span<const WorkerId> workers = {}) {
  ExpectScoresAre(index.Scores(prompt, workers), prompt, matches);
  if (!prompt.hashes.empty()) ExpectSameByIntegers(index, prompt, matches, workers);
}

}  // namespace kvcast::testing
