// Compares PrefixIndex::Scores with the answers of Match for the same query.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "kvcast/router/prefix_index.h"

namespace kvcast::testing {

// `matches`: the result of index.Match(prompt, workers). No batch may be applied between the two
// queries.
inline void ExpectScoresOf(const PrefixIndex& index, const PromptBlocks& prompt,
                           const std::vector<WorkerMatch>& matches,
                           std::span<const WorkerId> workers = {}) {
  const std::vector<WorkerScore> scores = index.Scores(prompt, workers);
  auto score = scores.begin();
  for (const WorkerMatch& match : matches) {
    if (match.gpu_tokens == 0) continue;
    ASSERT_NE(score, scores.end());
    EXPECT_EQ(score->worker, match.worker);
    EXPECT_EQ(score->gpu_tokens, match.gpu_tokens);
    const bool hidden = prompt.hashes.empty() && match.unnamed_gpu > 0;
    EXPECT_EQ(score->exact, match.certain && !match.ambiguous && match.untold == 0 && !hidden);
    ++score;
  }
  EXPECT_EQ(score, scores.end());
}

}  // namespace kvcast::testing
