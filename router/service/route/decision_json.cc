// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/decision_json.h"

#include <algorithm>
#include <vector>

#include "router/service/json/json_writer.h"
#include "router/service/route/vllm_prompt.h"

namespace kvcast::router {
namespace {

void WriteLoad(const WorkerLoad& load, JsonWriter& json) {
  json.Key("load");
  json.BeginObject();
  json.Member("active_prefill_tokens", load.active_prefill_tokens);
  json.Member("decode_blocks", load.decode_blocks);
  json.Member("peer_prefill_tokens", load.peer_prefill_tokens);
  json.Member("peer_requests", load.peer_requests);
  json.Member("queued_requests", load.queued_requests);
  json.EndObject();
}

void WritePeers(const PeersOfDecision& peers, JsonWriter& json) {
  json.Key("peers");
  json.BeginObject();
  json.Member("age_ms", peers.age_ms);
  json.Member("routers", static_cast<int64_t>(peers.routers));
  json.EndObject();
}

std::string Render(const RouteDecision& decision, const Query* query) {
  std::vector<const RouteCandidate*> by_cost;
  for (const RouteCandidate& candidate : decision.candidates) by_cost.push_back(&candidate);
  std::sort(by_cost.begin(), by_cost.end(),
            [](const RouteCandidate* a, const RouteCandidate* b) { return IsCheaper(*a, *b); });
  JsonWriter json;
  json.BeginObject();
  json.Key("candidates");
  json.BeginArray();
  for (const RouteCandidate* candidate : by_cost) {
    WriteAnswer(candidate->answer, json, [candidate](JsonWriter& more) {
      more.Member("cost", candidate->cost);
      more.Member("eligible", candidate->eligible);
      more.Member("load_storage_token", candidate->token_costs.storage);
      more.Member("load_token", candidate->token_costs.cpu);
      more.Member("not_eligible_reason", candidate->reason);
      more.Member("predicted_ttft_ms", 1000 * FirstTokenSeconds(candidate->parts));
      more.Member("speculative_tokens", candidate->speculative_tokens);
      WriteLoad(candidate->load, more);
    });
  }
  json.EndArray();
  json.Key("hints");
  json.BeginObject();
  json.Member("keep_prefix_tokens", decision.keep_prefix_tokens);
  json.Member("will_not_return_after", decision.will_not_return_after);
  json.EndObject();
  if (decision.keeps_slo) json.Member("keeps_slo", *decision.keeps_slo);
  if (decision.peers) WritePeers(*decision.peers, json);
  json.Member("prompt_tokens", decision.prompt_tokens);
  json.Member("reason", decision.reason);
  json.Member("request_id", decision.request_id);
  if (!decision.traceparent.empty()) json.Member("traceparent", decision.traceparent);
  if (query != nullptr && query->vllm_checkpoint_token) {
    json.Member("vllm_prompt", PromptWithCheckpoint(*query, decision));
  }
  json.Member("worker", decision.candidates[decision.chosen].answer.name);
  json.EndObject();
  return json.Take();
}

}  // namespace

std::string RenderDecision(const RouteDecision& decision) { return Render(decision, nullptr); }

std::string RenderDecision(const RouteDecision& decision, const Query& query) {
  return Render(decision, &query);
}

}  // namespace kvcast::router
