// The JSON of POST /v1/query: what is asked, and the answer.
//
// Request: an object with exactly one of
//   tokens   array of token ids, the whole prompt
//   hashes   array of block hashes: integers, or strings of hex digits for byte hashes
// and optionally
//   lora_name, cache_salt            strings; with tokens only
//   hash_block_size, prompt_tokens   integers; with hashes only. By default every worker's own unit
//                                    and a prompt that goes on after the last hash
//   workers                          array of names; absent: all
// Unknown members are refused: a misspelt cache_salt must not read another tenant's cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/prefix_index.h"
#include "kvcast/status.h"
#include "kvcast/subscriber.h"

namespace kvcast::router {

struct Query {
  bool by_tokens = true;
  std::vector<TokenId> tokens;
  HashInputs inputs;
  std::vector<BlockHash> hashes;
  int64_t hash_block_size = 0;       // 0: not given
  int64_t prompt_tokens = 0;         // 0: not given; with tokens their number
  std::vector<std::string> workers;  // empty: all
};

// Bounds of a query besides that on the body.
inline constexpr size_t kMaxQueryTextBytes = 1024;  // names and salts
inline constexpr size_t kMaxQueryHashBytes = 256;

// Not ok: one line that names the member at fault.
Result<Query> ParseQuery(std::string_view body);

struct QueryAnswer {
  std::string name;
  WorkerMatch match;
  int64_t hash_block_size = 0;  // 0: not known yet
  SourceState state = SourceState::kConnecting;
  uint64_t next_seq = 0;
};

// {"workers": [{"name", "reusable_tokens", "per_group_tokens", "hash_block_size", "state",
// "next_seq"}, ...]}
std::string RenderAnswers(const std::vector<QueryAnswer>& answers);

}  // namespace kvcast::router
