// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/engine/scenario_scheduler.h"

#include <algorithm>

namespace kvcast::tools {
namespace {

int64_t LongestChunk(const ScenarioConfig& config) {
  if (config.long_prefill_tokens == 0) return config.max_batched_tokens;
  return std::min(config.max_batched_tokens, config.long_prefill_tokens);
}

}  // namespace

ScenarioScheduler::ScenarioScheduler(const ScenarioConfig& config, const CacheConfig& cache)
    : split_(cache, LongestChunk(config)),
      max_batched_tokens_(config.max_batched_tokens),
      long_prefill_tokens_(config.long_prefill_tokens),
      draft_tokens_(config.draft_tokens),
      max_model_len_(cache.max_model_len) {}

int64_t ScenarioScheduler::NewTokens(const CacheRequest& request, const ScenarioOp& op,
                                     bool waiting) {
  if (waiting) to_sample_.erase(request.id);
  const auto length = static_cast<int64_t>(request.tokens.size());
  const int64_t computed = op.computed + (waiting ? op.hit - op.replay : 0);
  const int64_t coming = to_sample_[request.id];
  const bool decodes = !waiting && length > request.prompt_tokens;
  int64_t wanted = length + coming + (decodes ? draft_tokens_ : 0) - computed;
  if (long_prefill_tokens_ > 0) wanted = std::min(wanted, long_prefill_tokens_);
  wanted = std::min({wanted, budget_, max_model_len_ - computed});
  const int64_t chunk = split_.ChunkTokens(request, computed, wanted);
  if (op.ok) {
    budget_ -= chunk;
    if (computed + chunk >= length + coming) ++to_sample_[request.id];
  }
  // Tokens that are computed again already have their slots from the hit.
  return waiting ? std::max<int64_t>(0, chunk - op.replay) : chunk;
}

void ScenarioScheduler::OnOutput(const ScenarioOp& op) {
  for (const auto& [request, token] : op.sampled) {
    int64_t& coming = to_sample_[request];
    coming = std::max<int64_t>(0, coming - 1);
  }
}

}  // namespace kvcast::tools
