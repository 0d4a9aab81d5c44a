// Recorded engine runs ("scenarios"): configuration, steps and final state as parsed values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::tools {

struct ScenarioConfig {
  std::string name;
  CacheConfig cache;
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::string none_hash;  // raw bytes
  EventHashForm hash_form = EventHashForm::kInt64;
  // True: the engine encodes each event as an array, not as a map. The recording of such an engine
  // has no boundaries, and its events have fewer fields.
  bool array_events = false;
  ChainForm chain_form;
  int64_t replay_tokens = 0;  // tokens of a hit that are computed again
  int64_t data_parallel_rank = 0;
  bool has_max_in_flight_tokens = false;  // CacheConfig::max_in_flight_tokens is recorded
  bool embeddings = false;                // prompts may be embeddings
  // Configuration of the scheduler.
  int64_t max_batched_tokens = 0;
  int64_t long_prefill_tokens = 0;  // 0: no bound
  int64_t draft_tokens = 0;         // verified in each decoding step of a request
};

// A prompt: literal tokens, or a prefix of an earlier request and further tokens.
struct ScenarioPrompt {
  std::vector<TokenId> tokens;
  std::string from;    // name of the earlier request; empty: no prefix
  int64_t take = 0;    // tokens of the prefix
  int64_t length = 0;  // tokens of the whole prompt
  HashInputs inputs;
  std::optional<int64_t> lora_id;
  std::optional<std::string> session;
  bool report_hits = false;
};

using BlockLists = std::vector<std::vector<BlockId>>;

enum class OpKind : uint8_t {
  kAdd,
  kAbort,
  kReset,
  kSchedule,
  kLookup,
  kAlloc,
  kCowRelease,
  kAdvance,
  kOutput,
  kCache,
  kFree,
  kRollback,
};

struct ScenarioOp {
  OpKind kind = OpKind::kSchedule;
  std::string request;
  ScenarioPrompt prompt;  // kAdd
  // kOutput: one entry per token, in order.
  std::vector<std::pair<std::string, TokenId>> sampled;
  // Positions of the caused events in the step: begin and end. nullopt: no event.
  std::optional<std::pair<int64_t, int64_t>> event_range;
  int64_t hit = 0;       // tokens
  int64_t boundary = 0;  // tokens; see PrefixHit::shared_prefix_boundary
  int64_t replay = 0;    // tokens of the hit that are computed again
  int64_t computed = 0;
  int64_t new_tokens = 0;
  int64_t lookahead = 0;
  int64_t in_flight = 0;
  bool full_fit = false;
  bool ok = true;
  BlockLists blocks;
  std::vector<BlockId> copied;         // kCowRelease
  std::optional<int64_t> free_blocks;  // nullopt: not recorded
};

struct ScenarioProbe {
  ScenarioPrompt prompt;
  int64_t hit = 0;                 // tokens
  int64_t boundary = 0;            // tokens; see PrefixHit::shared_prefix_boundary
  int64_t replay = 0;              // tokens of the hit that are computed again
  std::vector<int64_t> per_group;  // empty: not recorded
};

struct ScenarioStep {
  int64_t step = 0;
  std::vector<ScenarioOp> ops;
  bool published = true;  // false: no batch ended in this step
  std::vector<Event> events;
  std::string payload;  // the published batch; empty: not recorded
  std::vector<ScenarioProbe> probes;
  int64_t free_blocks = 0;
};

// For each group, every cached hash with the number of blocks that hold it.
using ScenarioFinal = std::vector<std::vector<std::pair<BlockHash, int64_t>>>;

// Each function parses one line. An error names a missing member. For a member of the wrong type,
// the error names only the types.
Result<ScenarioConfig> ParseScenarioConfig(std::string_view line);
Result<ScenarioStep> ParseScenarioStep(std::string_view line);
Result<ScenarioFinal> ParseScenarioFinal(std::string_view line);
// True for the last line of a scenario.
bool IsScenarioFinal(std::string_view line);

}  // namespace kvcast::tools
