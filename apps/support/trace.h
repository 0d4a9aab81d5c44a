// Request traces: the Mooncake format (one JSON object per line), and the prompts of its requests.
//
// A trace names blocks of 512 tokens by id. An id identifies a block and all blocks before it, so
// two requests that share their first k ids share their first k * 512 tokens. The trace has no real
// token ids: the id of a block seeds the tokens of the block. Two prompts then share exactly the
// recorded prefix.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

inline constexpr int64_t kTraceBlockTokens = 512;
inline constexpr char kBundledTrace[] = "traces/mooncake_conversation_1200.jsonl";

struct TraceRequest {
  double arrival_s = 0;  // since the start of the trace
  int64_t input_length = 0;
  int64_t output_length = 0;
  std::vector<int64_t> block_ids;  // ceil(input_length / 512)
};

// Reads the first `limit` requests of the file (0: all), and orders them by arrival. If several
// arrivals were recorded at one time, they are spread evenly up to the next recorded time. Errors
// name the file and the line.
Result<std::vector<TraceRequest>> LoadTrace(const std::string& path, int64_t limit);
// The same for the content of a file. Errors use `name` as the file's name.
Result<std::vector<TraceRequest>> ParseTrace(std::string_view content, const std::string& name,
                                             int64_t limit);

// The prompt of a request: input_length token ids below `vocabulary`.
std::vector<TokenId> PromptTokens(const TraceRequest& request, int64_t vocabulary);

// Returns the k-th sampled token of request number `request`. The result is deterministic, so that
// the demo can compute the tokens of a request that returns after a preemption.
TokenId OutputToken(int64_t request, int64_t k, int64_t vocabulary);

}  // namespace kvcast::tools
