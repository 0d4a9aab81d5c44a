// The hint to keep a prefix, in the form of vLLM's application-directed checkpoints.
//
// vLLM's form (its RFC #55697, input processing in #55873) is a marker in the prompt: one special
// token, by default the text <|mamba_checkpoint|>. vLLM removes the marker before it hashes the
// prompt, and keeps the recurrent states at the marker's position, rounded down to a hash unit.
// vLLM refuses a prompt with several markers. vLLM also refuses a marker at the start or the end of
// the prompt, inside a multimodal item, or before the end of the first hash unit. This form cannot
// express will_not_return_after.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "kvcast/core/ids.h"
#include "router/service/route/query.h"
#include "router/service/route/request_router.h"

namespace kvcast::router {

// The prompt of the query with one marker, query.vllm_checkpoint_token, before the token at
// RouteDecision::keep_prefix_tokens. If this position is inside a multimodal item, the marker is
// before the item. nullopt: the query has no such token, there is no hint, the prompt has the
// marker already, or vLLM would refuse the marker.
std::optional<std::vector<TokenId>> PromptWithCheckpoint(const Query& query,
                                                         const RouteDecision& decision);

}  // namespace kvcast::router
