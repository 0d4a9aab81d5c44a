// What one run of the content test is: a model's groups, a tier behind them, sizes, a seed.
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

// What is taken out of the run to see that its absence is found.
enum class Fault : uint8_t {
  kNone,
  kNoFlush,        // stores that must end before a step are not waited for
  kNoPin,          // nothing holds the GPU blocks of running copies
  kNoEvent,        // copies do not wait for the computation that was submitted before
  kStoreTooEarly,  // stores are submitted in the step that computes their blocks
  kReleasedEarly,  // a request goes on when its load has started
  kFreedWhenLate,  // the blocks of a load that is given up are freed before its copy has ended
  kReportedEarly,  // the backend says that a batch has ended, and moves its bytes afterwards
  kLikeVllm,       // the connector follows vLLM's rules where it would do better
};

// A lookup of the engine that nothing held up: all that counted was what is announced.
struct FreeLookup {
  const CacheRequest& request;
  int64_t local_tokens = 0;     // the hit on the GPU
  int64_t external_tokens = 0;  // what can be loaded behind it
};

struct RunConfig {
  std::string name;
  TierKind tier = TierKind::kConnector;
  std::vector<GroupSpec> groups;
  // By group: bytes of a token's KV, or of a fourth of a Mamba state. Multiples of 8.
  std::vector<uint32_t> cell_bytes;
  int64_t blocks_per_chunk = 1;                      // connector
  EngineRules rules = EngineRules::kMain2026August;  // connector
  int64_t num_blocks = 100;                          // GPU, the null block included
  int64_t host_blocks = 180;                         // of the size of the largest group's
  int64_t hash_unit = 4;                             // tokens
  // True: copies run on threads of their own. The test cannot say when, and none fails.
  bool threads = false;
  // Loads take some 40 ms of the run's time. Later than this they are given up, and some are stuck
  // for longer; 0: neither.
  int64_t late_load_ms = 100;
  Fault fault = Fault::kNone;
  // Told of all events, the GPU's first, before each lookup that is told of.
  std::function<void(std::vector<Event>)> on_events;
  std::function<void(const FreeLookup&)> on_lookup;
  uint64_t seed = 1;
  int64_t operations = 2000;  // see RunCounts
};

// What was done. A run ends when the operations have reached its `operations`.
struct RunCounts {
  int64_t requests = 0;
  int64_t decodes = 0;  // of one request in one step
  int64_t prefills = 0;
  int64_t loads = 0;  // jobs that ended
  int64_t stores = 0;
  int64_t failed_loads = 0;  // of them
  int64_t failed_stores = 0;
  int64_t late_loads = 0;     // requests that were told
  int64_t refused_loads = 0;  // less than was matched, and not to be had
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

// Bytes that were not what they should have been, in blocks.
struct Findings {
  int64_t before_use = 0;  // read by a step's attention
  int64_t after_use = 0;   // read or written by the step, and changed before it ended
  int64_t in_host = 0;     // could have been loaded
  std::string first;       // where and when

  int64_t sum() const { return before_use + after_use + in_host; }
};

}  // namespace kvcast::content
