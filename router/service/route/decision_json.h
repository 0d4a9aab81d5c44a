// The JSON of a routing decision.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "router/service/route/request_router.h"

namespace kvcast::router {

// {"request_id", "prompt_tokens", "worker", "reason"[, "keeps_slo"][, "traceparent"]
// [, "vllm_prompt"][, "peers": {"routers", "age_ms": x|null}], "hints":
// {"keep_prefix_tokens", "will_not_return_after": tokens|null}, "candidates": [{members of an
// answer, "speculative_tokens", "load": {...}, "load_token", "load_storage_token", "cost",
// "predicted_ttft_ms", "eligible", "not_eligible_reason"}, ...]}. The candidates are ordered by
// cost; candidates that are not eligible come last.
std::string RenderDecision(const RouteDecision& decision);
// As above. If the query has vllm_checkpoint_token, "vllm_prompt" is the result of
// PromptWithCheckpoint, or null.
std::string RenderDecision(const RouteDecision& decision, const Query& query);

}  // namespace kvcast::router
