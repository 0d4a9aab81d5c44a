// WorkerRegistration: a worker to follow, as the operator configures it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/mooncake_events.h"
#include "router/service/ingest/trtllm_events.h"
#include "src/event_log/open_log.h"

namespace kvcast::router {

// The format of the payloads of a source.
enum class EventFormat : uint8_t {
  kEngine,    // an engine's batches; see kvcast/wire/wire.h
  kMooncake,  // see mooncake_events.h
  kTrtllm,    // see trtllm_events.h
};

// A worker to follow, as the operator configures it.
struct WorkerRegistration {
  // Endpoint of the publisher's PUB socket, or of a log (src/event_log/open_log.h). For kTrtllm
  // also a URL that is polled, or kPushEndpoint.
  std::string endpoint;
  std::string replay_endpoint;  // endpoint of the ROUTER socket; empty: gaps cannot be filled
  std::string topic;            // subscription prefix; empty: all
  bool bind = false;            // the router listens, and the publisher connects; see SourceConfig
  std::string server_key;       // see SourceConfig; empty: no CURVE
  bool insecure = false;        // the source may be beyond loopback without CURVE
  // Number of the engine's GPU blocks that can hold prefixes. For vLLM: num_gpu_blocks - 1, because
  // vLLM never uses block 0. If a group holds more block copies on the GPU than this number, the
  // index missed removes (checked only with a replay endpoint). If the index holds this number of
  // GPU blocks, no block is missing. 0: unknown.
  int64_t gpu_blocks = 0;
  // Maximum number of residencies: blocks of all groups on all tiers together. If a source has
  // more, the router drops its blocks, and quarantines the source if a subscriber follows it. 0:
  // kDefaultMaxBlocks for each group that has had blocks, for at most 16 groups.
  int64_t max_residencies = 0;
  WorkerConfig worker;  // name (unique, not empty), groups, hash_block_size, alignment
  // The hash scheme of the engine, for queries by tokens. The router verifies the values, and
  // detects the values that are not set.
  std::optional<HashAlgorithm> algorithm;
  std::optional<std::string> hash_seed;  // the engine's PYTHONHASHSEED
  std::vector<uint8_t> none_hash;        // NONE_HASH as raw bytes; if set, it replaces the seed
  // Values that are tried in addition to hash_seed, none_hash and kWellKnownHashSeeds.
  std::vector<std::string> candidate_seeds;
  std::vector<std::vector<uint8_t>> candidate_none_hashes;
  // The model that the worker serves, and the names of the worker; for selection and display.
  std::string model;
  std::string instance;             // empty: worker.name is used
  bool instance_is_number = false;  // the instance is a number in JSON
  int64_t block_size = 0;           // as POST /register gives it; only displayed. 0: not given
  std::string routing_group = "default";  // a query can select the workers of one group
  int64_t data_parallel_rank = 0;
  // Number of ranks, from data_parallel_rank on. Each rank is a worker of its own; see ExpandRanks.
  int64_t data_parallel_size = 1;
  // True: the endpoint sends the batches (TensorRT-LLM: events) of several ranks with one common
  // sequence of numbers. Batches that do not name data_parallel_rank are left out.
  bool rank_by_tag = false;
  EventFormat format = EventFormat::kEngine;
  MooncakeConfig mooncake;  // format kMooncake
  // Format kTrtllm. With rank_by_tag, data_parallel_rank replaces trtllm.attention_dp_rank.
  TrtllmConfig trtllm;
  int64_t poll_ms = 50;  // milliseconds between two polls; no use with kPushEndpoint
  // Path of each LoRA adapter, by name. vLLM 0.31 and later hashes the path, but no event contains
  // the path.
  std::map<std::string, std::string> lora_paths;
  LoadRateConfig load_rates;
};

// True: the router can request lost batches.
inline bool HasReplay(const WorkerRegistration& source) {
  return !source.replay_endpoint.empty() || IsLogEndpoint(source.endpoint);
}

// Defaults for the sources of the source files, of DNS and of Kubernetes.
struct SourceDefaults {
  // For each source that does not set the same property.
  std::optional<HashAlgorithm> algorithm;
  std::optional<std::string> hash_seed;
  // Added to the candidates of each source.
  std::vector<std::string> candidate_seeds;
  std::vector<std::vector<uint8_t>> candidate_none_hashes;

  void ApplyTo(WorkerRegistration& source) const;
};

inline constexpr int64_t kDefaultMaxBlocks = int64_t{1} << 22;

// Returns one source for each data-parallel rank from data_parallel_rank on. The names are
// NAME-dp<rank>. All ranks have the same instance. The ports are those of EndpointForRank; with
// rank_by_tag all ranks have the same port. If the ranks run on several nodes, each node needs a
// source of its own. A source with one rank is returned unchanged. kInvalidArgument: a rank is too
// large, or an endpoint cannot have ranks.
Result<std::vector<WorkerRegistration>> ExpandRanks(const WorkerRegistration& source);

}  // namespace kvcast::router
