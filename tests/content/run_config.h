// The configuration of one content run: the groups of a model, the tier of host memory, sizes, and
// a seed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/engine/cache_manager.h"

namespace kvcast::content {

enum class TierKind : uint8_t { kConnector, kSimpleEager, kSimpleLazy };

// The rule that a run omits. The test must detect the omission.
enum class Fault : uint8_t {
  kNone,
  kNoFlush,        // no step waits for the stores that must end before it
  kNoPin,          // no pin holds the GPU blocks of running copies
  kNoEvent,        // copies do not wait for the computation that was submitted before them
  kStoreTooEarly,  // stores are submitted in the step that computes their blocks
  kReleasedEarly,  // a request continues as soon as its load has started
  kFreedWhenLate,  // the blocks of a load that was given up are freed before its copy ends
  kReportedEarly,  // the backend reports that a batch has ended before it moves the bytes
  kLikeVllm,       // the connector follows vLLM's rules even where kvcast's rules are better
};

// A lookup of the engine that no running copy affects: the announced blocks alone decide the
// result.
struct FreeLookup {
  const CacheRequest& request;
  int64_t local_tokens = 0;     // the hit on the GPU
  int64_t external_tokens = 0;  // loadable tokens after the hit
};

struct RunConfig {
  std::string name;
  TierKind tier = TierKind::kConnector;
  std::vector<GroupSpec> groups;
  // By group: bytes of one token's KV, or of a quarter of a Mamba state. Must be multiples of 8.
  std::vector<uint32_t> cell_bytes;
  int64_t blocks_per_chunk = 1;                      // connector
  EngineRules rules = EngineRules::kMain2026August;  // connector
  int64_t num_blocks = 100;                          // on the GPU, including the null block
  int64_t host_blocks = 180;                         // in blocks of the largest group
  int64_t hash_block_size = 4;                       // tokens
  // True: copies run on their own threads. The test does not control their timing, and no copy
  // fails.
  bool threads = false;
  // A load takes about 40 ms of the run's time. A load that takes longer than this limit is given
  // up, and some loads are stuck for longer. 0: no limit and no stuck loads.
  int64_t late_load_ms = 100;
  Fault fault = Fault::kNone;
  // Receives all new events before each call of on_lookup and at the end of each step. The events
  // of the GPU come first.
  std::function<void(std::vector<Event>)> on_events;
  std::function<void(const FreeLookup&)> on_lookup;
  uint64_t seed = 1;
  int64_t operations = 2000;  // see RunCounts
};

// Counts of the work done. A run ends when operations() reaches RunConfig::operations.
struct RunCounts {
  int64_t requests = 0;
  int64_t decodes = 0;  // one per request and step
  int64_t prefills = 0;
  int64_t loads = 0;  // ended jobs
  int64_t stores = 0;
  int64_t failed_loads = 0;  // part of `loads`
  int64_t failed_stores = 0;
  int64_t late_loads = 0;     // requests that were notified of a late load
  int64_t refused_loads = 0;  // loads that the tier refused
  int64_t flushes = 0;        // jobs that a step waited for
  int64_t preemptions = 0;
  int64_t aborts = 0;
  int64_t finished = 0;
  int64_t host_resets = 0;
  int64_t gpu_resets = 0;
  int64_t evictions = 0;
  int64_t steps = 0;
  int64_t loaded_tokens = 0;
  int64_t checked_blocks = 0;

  struct Field {
    const char* name;
    int64_t RunCounts::*count;
    bool is_operation;
  };
  static std::span<const Field> Fields();
  int64_t operations() const;
  void Add(const RunCounts& other);
  std::string Text() const;
};

inline std::span<const RunCounts::Field> RunCounts::Fields() {
  static constexpr Field kFields[] = {
      {"requests", &RunCounts::requests, true},
      {"decodes", &RunCounts::decodes, true},
      {"prefills", &RunCounts::prefills, true},
      {"loads", &RunCounts::loads, true},
      {"stores", &RunCounts::stores, true},
      {"failed loads", &RunCounts::failed_loads, false},
      {"failed stores", &RunCounts::failed_stores, false},
      {"late loads", &RunCounts::late_loads, false},
      {"refused loads", &RunCounts::refused_loads, false},
      {"flushes", &RunCounts::flushes, false},
      {"preemptions", &RunCounts::preemptions, true},
      {"aborts", &RunCounts::aborts, true},
      {"finished", &RunCounts::finished, true},
      {"host resets", &RunCounts::host_resets, true},
      {"GPU resets", &RunCounts::gpu_resets, true},
      {"evictions", &RunCounts::evictions, true},
      {"steps", &RunCounts::steps, false},
      {"loaded tokens", &RunCounts::loaded_tokens, false},
      {"checked blocks", &RunCounts::checked_blocks, false},
  };
  return kFields;
}

inline int64_t RunCounts::operations() const {
  int64_t sum = 0;
  for (const Field& field : Fields()) sum += field.is_operation ? this->*field.count : 0;
  return sum;
}

inline void RunCounts::Add(const RunCounts& other) {
  for (const Field& field : Fields()) this->*field.count += other.*field.count;
}

inline std::string RunCounts::Text() const {
  std::string text = std::to_string(operations()) + " operations:";
  for (const Field& field : Fields()) {
    text += std::string(" ") + field.name + " " + std::to_string(this->*field.count) + ",";
  }
  text.pop_back();
  return text;
}

// Numbers of wrong tokens and states on the GPU, and of wrong blocks in host memory.
struct Findings {
  int64_t before_use = 0;  // wrong when a step reads the token or the state
  int64_t after_use = 0;   // read or written by the step, and changed before the step ended
  int64_t in_host = 0;     // in a loadable chunk
  std::string first;       // place and time of the first finding

  int64_t sum() const { return before_use + after_use + in_host; }
};

}  // namespace kvcast::content
