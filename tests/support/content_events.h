// Shared parts of the tests of content keys: an index of one worker that the tests query by
// content, and builders of stores with token ids.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/router/content_key.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/prompt_contents.h"
#include "tests/support/index_events.h"
#include "tests/support/score_check.h"

namespace kvcast::testing {

// Returns `count` tokens: first, first + 1, ...
inline std::vector<TokenId> Tokens(TokenId first, int64_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline BlockHash Hash(uint64_t value) { return BlockHash::FromUnsigned(value); }

// Returns a store of blocks with `block_size` tokens: `hashes` for the span `tokens`, after block
// `parent`.
inline BlockStored StoreTokens(std::vector<BlockHash> hashes, std::vector<TokenId> tokens,
                               std::optional<BlockHash> parent = std::nullopt, int64_t group = 0,
                               int64_t block_size = 4) {
  BlockStored event = StoreFull(std::move(hashes), group, block_size);
  event.token_ids = std::move(tokens);
  event.parent_block_hash = std::move(parent);
  return event;
}

// Adds extra keys to a store, one entry for each hash. vLLM sends stores in this form.
inline BlockStored WithExtraKeys(BlockStored event,
                                 std::vector<std::optional<ExtraKeys>> extra_keys) {
  event.extra_keys = std::move(extra_keys);
  return event;
}
inline BlockStored WithNoExtraKeys(BlockStored event) {
  event.extra_keys.emplace(event.block_hashes.size(), std::nullopt);
  return event;
}

// An index with one worker. The hash_block_size is 4 tokens. The secret of the keys is fixed. The
// index keeps the evidence of reuse in small tables, which lose entries. The secret decides which
// entries are lost.
class ContentWorker {
 public:
  explicit ContentWorker(std::vector<GroupSpec> groups = {}, WorkerConfig config = {}) {
    config.name = "worker";
    config.groups = std::move(groups);
    config.hash_block_size = 4;
    EXPECT_TRUE(index_.AddWorker(kWorker, config).ok());
  }

  template <typename... Events>
  void Apply(Events... events) {
    index_.Apply(kWorker, Batch(std::move(events)...));
  }
  template <typename... Events>
  void ApplyHidden(Events... events) {
    index_.ApplyHidden(kWorker, Batch(std::move(events)...));
  }
  // Matches a prompt of these tokens and max(1, lookahead) more tokens.
  WorkerMatch Match(std::vector<TokenId> tokens, const HashInputs& inputs = {},
                    int64_t lookahead = 0) const {
    tokens.insert(tokens.end(), static_cast<size_t>(std::max<int64_t>(1, lookahead)), -1);
    return MatchWhole(tokens, inputs, lookahead);
  }
  // Returns the reusable GPU tokens of the prompt that Match builds, according to the index.
  int64_t Reusable(std::vector<TokenId> tokens, const HashInputs& inputs = {},
                   int64_t lookahead = 0) const {
    return Match(std::move(tokens), inputs, lookahead).gpu_tokens;
  }
  // Matches a prompt of exactly these tokens.
  WorkerMatch MatchWhole(const std::vector<TokenId>& tokens, const HashInputs& inputs = {},
                         int64_t lookahead = 0) const {
    const auto contents = PromptContents(index_.keys(), tokens, 4, lookahead, inputs);
    const PromptBlocks prompt = {.hash_block_size = 4,
                                 .prompt_tokens = std::ssize(tokens),
                                 .lookahead = lookahead,
                                 .contents = contents,
                                 .hashes = {}};
    const auto matches = index_.Match(prompt);
    EXPECT_EQ(matches.size(), 1u);
    ExpectScoresOf(index_, prompt, matches);
    return matches.empty() ? WorkerMatch() : matches[0];
  }
  // Returns the content of a held block, according to the index. kUnnamed: the content is not
  // known.
  ContentKey ContentOf(const BlockHash& hash) const { return index_.ContentOf(kWorker, hash); }
  bool Knows(const BlockHash& hash) const { return ContentOf(hash) != kUnnamed; }

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }
  IndexCounters counters() const { return index_.counters(kWorker); }
  // Returns the number of stored blocks that stayed unnamed for this reason.
  uint64_t unnamed_for(UnnamedReason reason) const {
    return counters().unnamed_blocks[static_cast<size_t>(reason)];
  }

 private:
  const ContentKeys keys_{1};
  PrefixIndex index_{keys_};
};

inline WorkerConfig TellingHits() { return {.hit_reports = HitReports::kExpected}; }

inline BlockStored OfKind(BlockStored event, std::optional<std::string> kind,
                          std::optional<int64_t> window = std::nullopt) {
  event.kv_cache_spec_kind = std::move(kind);
  event.kv_cache_spec_sliding_window = window;
  return event;
}

inline BlockStored OnHost(BlockStored event) {
  event.medium = "CPU";
  return event;
}

inline bool Lacks(const WorkerMatch& match, UnknownProperty property) {
  return (match.unknown & static_cast<uint32_t>(property)) != 0;
}

}  // namespace kvcast::testing
