// Request traces: the Mooncake format (one JSON object a line) and the prompts that it stands for.
//
// A trace names blocks of 512 tokens by id; an id stands for a block and everything before it, so
// two requests that share their first k ids share their first k * 512 tokens. Real token ids are
// not in the trace: each block's tokens are drawn from its id, which keeps exactly the sharing that
// was recorded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

inline constexpr int64_t kTraceBlockTokens = 512;
inline constexpr char kBundledTrace[] = "traces/mooncake_conversation_1200.jsonl";

struct TraceRequest {
  double arrival_s = 0;  // since the trace's start
  int64_t input_length = 0;
  int64_t output_length = 0;
  std::vector<int64_t> block_ids;  // ceil(input_length / 512)
};

// Reads up to `limit` requests, in arrival order (0: all). Arrivals that were recorded in steps are
// spread evenly up to the next step. Errors name the file and the line.
Result<std::vector<TraceRequest>> LoadTrace(const std::string& path, int64_t limit);

// The prompt of a request: input_length token ids below `vocabulary`.
std::vector<TokenId> PromptTokens(const TraceRequest& request, int64_t vocabulary);

// The k-th sampled token of request number `request`; deterministic, so that a router that sees a
// preempted request come back can know its tokens.
TokenId OutputToken(int64_t request, int64_t k, int64_t vocabulary);

}  // namespace kvcast::tools
