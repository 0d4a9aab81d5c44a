// Prompts: the tokens, the hash chains and the answers of a slice's requests. Built once per slice.
// Const after construction, so that simulations in several threads can share the object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/simulate/workload.h"
#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast::simulate {

// The number of a prompt prefix. The prefix ends with a whole hash unit. Equal prefixes have equal
// numbers. The numbers start at 0 and have no gaps.
using PrefixNumber = uint32_t;

class Prompts {
 public:
  // `unit`: tokens per block hash. `unit` must divide slice.block_tokens, or be a multiple
  // of slice.block_tokens.
  // `slice` must outlive the object.
  Prompts(const Slice& slice, int64_t unit, BlockHasher hasher);

  int64_t unit() const { return unit_; }
  size_t prefixes() const { return digests_.size(); }
  // The prefixes of the request's prompt, from the shortest to the longest.
  std::span<const PrefixNumber> PrefixesOf(size_t request) const { return prefixes_[request]; }
  std::vector<Digest> ChainOf(size_t request) const;
  // The integer forms of the chain, as in events.
  std::vector<uint64_t> HashesOf(size_t request) const;
  std::vector<TokenId> TokensOf(size_t request) const;
  std::vector<TokenId> AnswerOf(size_t request) const;

 private:
  void AppendTokens(size_t request, int64_t begin, int64_t end, std::vector<TokenId>& out) const;

  const Slice& slice_;
  const int64_t unit_;
  std::vector<Digest> digests_;
  std::vector<std::vector<PrefixNumber>> prefixes_;  // by request
};

}  // namespace kvcast::simulate
