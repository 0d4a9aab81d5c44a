// One simulation of a small slice, for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "apps/simulate/fleet_simulation.h"
#include "apps/simulate/workload_sources.h"

namespace kvcast::simulate {

// A slice with its prompts and the cache of each engine. The pools are small, so that they evict.
class SmallFleet {
 public:
  explicit SmallFleet(std::string_view model, Slice slice, int64_t engines = 3,
                      int64_t fleet_tokens = 100'000)
      : model_(FindSimModel(model).value()), slice_(std::move(slice)) {
    int64_t longest = 0;
    int64_t sum = 0;
    for (const WorkloadRequest& request : slice_.requests) {
      longest = std::max(longest, request.prompt_tokens + request.output_tokens);
      sum += request.prompt_tokens;
    }
    const auto count = std::ssize(slice_.requests);
    cache = MakeSimCache(model_,
                         {.fleet_tokens = fleet_tokens,
                          .mean_tokens = sum / count,
                          .engines = engines,
                          .requests = count},
                         longest)
                .value();
    options.engines = engines;
    prompts_.emplace(slice_, cache.hash_block_size,
                     BlockHasher::FromSeed(HashAlgorithm::kXxhash, kDefaultHashSeed).value());
  }

  RunResult Run(const RuleChoice& rule, IndexKind kind = IndexKind::kExact) const {
    const SliceSetup setup{model_, slice_, *prompts_, cache, time_scale};
    return RunFleet(setup, options, rule, kind).value();
  }
  RunResult Run(std::string_view rule, IndexKind kind = IndexKind::kExact) const {
    return Run(ParseRule(rule).value(), kind);
  }

  const Slice& slice() const { return slice_; }

  FleetOptions options;
  CacheConfig cache;
  double time_scale = 0.2;  // five times the load of one request per second

 private:
  const SimModel model_;
  const Slice slice_;
  std::optional<Prompts> prompts_;
};

inline Slice SharedSlice(int64_t requests, uint64_t seed = 1) {
  return GenerateShared({.slices = 1, .requests = requests, .seed = seed}).slices.front();
}

}  // namespace kvcast::simulate
