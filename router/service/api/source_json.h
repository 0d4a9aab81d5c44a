// Sources as the operator writes them: an object of the configuration file or of POST /v1/sources,
// or one flag on the command line. The members are the same everywhere:
//
//   name                   needed; unique
//   endpoint               needed; where the publisher's PUB listens. Format trtllm: also a URL
//   that
//                          is polled ("http://HOST:PORT/kv_cache_events"), or "push" (events come
//                          by POST /v1/events?worker=NAME)
//   replay_endpoint        its ROUTER; without it gaps cannot be closed
//   topic                  subscription prefix
//   bind                   true: the publisher connects to `endpoint` (vLLM's does for
//                          tcp://127.0.0.1:PORT), and the router listens there
//   model, instance_id, routing_group, data_parallel_rank    for selection and display
//   data_parallel_size     so many workers from data_parallel_rank on, NAME-dp0 and so on, of one
//                          instance; each node with ranks of its own is a source
//   ranks_on               "ports" (default): each rank has the endpoints' ports plus its number;
//                          "tag": one endpoint, and each batch (trtllm: event) names its rank
//   format                 "engine" (default: vLLM, SGLang, LMCache's stores, kvcast, told apart
//   event
//                          by event); "mooncake", with tenant_id and backend_id; "trtllm", with
//                          tokens_per_block and window_sizes (in a flag joined by +), the windows
//                          of the model, the largest being full attention unless largest_is_window;
//                          partial_reuse (false: the engine reuses whole blocks alone); poll_ms
//   hash_algorithm, hash_seed, none_hash (hex)   verified; what is not given is found out
//   candidate_seeds, candidate_none_hashes       tried besides the well-known ones
//   groups                 by group_idx: {"kind", "block_size", "sliding_window", "chunk_size",
//                          "eagle", "prefix_cacheable"}; in a flag
//                          KIND:BLOCK_SIZE[:WINDOW or CHUNK][:eagle], joined by +
//   eagle, chunk_size      of groups that are learned: whether they drop a block for a draft head;
//                          the chunk of chunked local attention
//   release                "v0.21", "2026-05", "2026-08", "v0.32" or "v0.33"
//   lookahead              tokens behind a block that its hash covers; absent: learned
//   replay_tokens          of a hit, computed again (bounded replay)
//   lora_paths             {name: path} of LoRA adapters; in a flag NAME:PATH, joined by +
//   kv_bytes_per_token, prefill_tokens_per_s, cpu_load_bytes_per_s, storage_load_bytes_per_s
//                          the cost of a load beside computing; see load_rates.h
//   hash_block_size, alignment, blocks_per_chunk
//   offload_rule           "connector", "offload_scheduler" or "mirrored_pool": see OffloadRule.
//                          Not told: no answer is exact with its loads
//   gpu_blocks             the most blocks that a group can have on the GPU; more refute the state
//   reports_hits           true: the engine announces hits again (kv_cache_report_mode "full");
//                          false: it never does. Not told: a store that may be either is doubtful
//   sparse_alignment       with it the positions of sparse stores can be proved
//   sparse_retention       tokens between retained boundaries; absent: dense
//   sparse_rules           as release; default "2026-08"
//   zero_parent_is_root, repeats_are_refreshes   see WorkerConfig
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvcast/core/status.h"
#include "router/service/ingest/source.h"

namespace kvcast::router {

// Not ok: one line that names the member. Unknown members are refused.
Result<RouterSource> SourceFromJson(const nlohmann::json& object);
// NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...]; lists are joined by +.
Result<RouterSource> SourceFromFlag(const std::string& text);
// What SourceFromJson would take; members at their default are left out.
nlohmann::json SourceToJson(const RouterSource& source);

}  // namespace kvcast::router
