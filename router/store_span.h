// StoreSpan: one store's token span, and what can be told of its blocks' content.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/event.h"
#include "router/sparse_span.h"
#include "router/token_records.h"

namespace kvcast::router {

// The records are pinned by whoever keeps the span.
struct StoreSpan {
  BlockStored event;            // its hashes are not used: `hashes` are their records
  bool at_root = false;         // the span begins the prompt
  RecordId parent = kNoRecord;  // of the block before the span; kNoRecord: none, or not told
  std::vector<RecordId> hashes;
  int64_t blocks = 0;  // whole blocks of the token span

  bool dense() const { return std::ssize(hashes) == blocks; }
  std::span<const TokenId> TokensOf(int64_t block) const;
};

// Whether tokens, hashes and block size of a store fit together.
bool HasUsableTokens(const BlockStored& event);

// The name of a prefix that ends at a block boundary of the span.
struct Boundary {
  enum class Known : uint8_t { kNo, kYes, kHidden };
  Known known = Known::kNo;
  Unresolved reason = Unresolved::kHiddenContent;  // kHidden
  ContentState state = 0;                          // kYes
};

// What was found out; indexed by block, or by boundary (block i lies between boundaries i and
// i + 1).
struct SpanContent {
  std::optional<int64_t> start;    // tokens before the span
  std::vector<int64_t> blocks_of;  // by hash; kNoBlock
  bool by_rule = false;            // some of them only by the sparse rule
  bool rule_refuted = false;
  bool inconsistent = false;         // positions that contradict each other
  std::vector<Boundary> boundaries;  // blocks + 1
  // By boundary: the record that it was told by, or kNoRecord (told by the root, or not known).
  std::vector<RecordId> source;
  std::vector<bool> from_behind;  // by boundary: told by a record that ends behind it
  // By block, if `inner_step` > 0: the states inside, every inner_step tokens.
  std::vector<std::vector<ContentState>> inner;
  RecordId conflict = kNoRecord;  // names another content than its tokens and parent say
};

// `rule`: with the group's spec, if it applies. `unit`: tokens per hash, 0 if not known.
SpanContent ReadSpan(const StoreSpan& span, const TokenRecords& records, const SparseRule* rule,
                     const GroupSpec* spec, int64_t unit);

}  // namespace kvcast::router
