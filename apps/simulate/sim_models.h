// The models of `kvcast simulate`: their KV-cache groups, and the time that a machine needs.
//
// The times come from the sizes of the model and of the machine, by a roofline: matrix products at
// 55 % of the peak of an H100 (989.5 TFLOP/s), weights at 73 % and KV at 51 % of the H100's
// bandwidth (3.35 TB/s), loads at 80 % of the link to host memory (50 GB/s). Only the ratios
// between rules are meaningful, and not the absolute times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/engine/step_time.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::simulate {

// Maximum number of tokens of a prompt and its answer together.
inline constexpr int64_t kMaxSequenceTokens = int64_t{1} << 20;

struct SimModel {
  std::string_view name;
  std::string_view description;
  std::vector<GroupSpec> groups;
  int64_t replay_tokens = 0;  // see CacheConfig
  tools::StepTime time;
  double load_tokens_per_s = 0;  // from host memory
};

const std::vector<SimModel>& SimModels();
// Error: the message lists the known names.
Result<SimModel> FindSimModel(std::string_view name);

struct SimCacheOptions {
  std::string retention = "0";  // "dense", or the interval in tokens
  int64_t fleet_tokens = 0;     // tokens that all caches together hold, in average sequences
  int64_t mean_tokens = 1;      // length of an average sequence
  int64_t engines = 1;
  int64_t requests = 0;  // of the slice
};
// Returns the cache of one engine. Its pool has room for fleet_tokens / mean_tokens / engines idle
// sequences, with the blocks that retention 0 keeps. The pool has at most the blocks of `requests`
// requests of `longest_tokens` tokens, and at least the blocks that two such running requests need.
// REQUIRES: longest_tokens is at most kMaxSequenceTokens.
Result<CacheConfig> MakeSimCache(const SimModel& model, const SimCacheOptions& options,
                                 int64_t longest_tokens);

}  // namespace kvcast::simulate
