// Sources as an operator writes them: an object of the configuration file or of POST /v1/sources,
// or one flag on the command line (source_flag.h). All three have the same members:
//
//   name                   required; unique
//   endpoint               required; endpoint of the publisher's PUB socket. Format trtllm: also a
//                          URL to poll ("http://HOST:PORT/kv_cache_events"), or "push" (the events
//                          arrive by POST /v1/events?worker=NAME)
//   replay_endpoint        the publisher's ROUTER socket; without it, gaps cannot be closed
//   topic                  subscription prefix
//   bind                   true: the router listens at `endpoint` and the publisher connects to it
//                          (vLLM does so for tcp://127.0.0.1:PORT)
//   model, instance_id, routing_group, data_parallel_rank    for selection and display
//   data_parallel_size     number of workers of one instance, from data_parallel_rank on, named
//                          NAME-dp0 and so on; a node with ranks of its own is a source of its own
//   ranks_on               "ports" (default): each rank has the endpoints' ports plus its number;
//                          "tag": one endpoint, and each batch (trtllm: event) names its rank
//   format                 "engine" (default: vLLM, SGLang, LMCache's stores, kvcast; the decoder
//                          detects the layout of each event); "mooncake", with tenant_id and
//                          backend_id; "trtllm", with
//                          tokens_per_block;
//                          window_sizes, the windows of the model (in a flag joined by +); the
//                          largest window is full attention unless largest_is_window is true;
//                          partial_reuse (false: the engine reuses whole blocks only);
//                          poll_ms
//   hash_algorithm, hash_seed, none_hash (hex)   verified; a missing one is detected
//   candidate_seeds, candidate_none_hashes       tried in addition to the well-known ones
//   groups                 by group_idx: {"kind", "block_size", "sliding_window", "chunk_size",
//                          "eagle", "prefix_cacheable"}; in a flag
//                          KIND:BLOCK_SIZE[:WINDOW or CHUNK][:eagle], joined by +
//   eagle, chunk_size      of groups learned from events: whether they drop a block for a draft
//                          head; the chunk size of chunked local attention
//   release                "v0.21", "2026-05", "2026-08", "v0.32" or "v0.33"
//   lookahead              number of tokens after a block that its hash covers; absent: learned
//   replay_tokens          tokens of a hit that are computed again (bounded replay)
//   lora_paths             {name: path} of LoRA adapters; in a flag NAME:PATH, joined by +
//   kv_bytes_per_token, prefill_tokens_per_s, cpu_load_bytes_per_s, storage_load_bytes_per_s
//                          the cost of a load relative to computing; see load_rates.h
//   hash_block_size, alignment, blocks_per_chunk
//   offload_rule           "connector", "offload_scheduler" or "mirrored_pool"; see OffloadRule.
//                          Absent: no answer is exact with its loads
//   gpu_blocks             the most blocks that a group can have on the GPU; a larger number of
//                          blocks refutes the state
//   reports_hits           true: the engine announces hits again (kv_cache_report_mode "full");
//                          false: it never does. Absent: a store that may be either makes the
//                          block count uncertain
//   sparse_alignment       proves the positions of sparse stores
//   sparse_retention       tokens between retained boundaries; absent: dense
//   sparse_rules           as release; default "2026-08"
//   zero_parent_is_root, repeats_are_refreshes   see WorkerConfig
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"

namespace kvcast::router {

// Not ok: one line that names the wrong member. Unknown members are refused.
Result<WorkerRegistration> SourceFromJson(const nlohmann::json& object);
// The JSON that SourceFromJson accepts for this source. Members with their default value are left
// out.
nlohmann::json SourceToJson(const WorkerRegistration& source);

}  // namespace kvcast::router
