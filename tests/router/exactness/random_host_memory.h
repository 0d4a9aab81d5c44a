// Host memory behind a random engine: the schedulers of copies, without the bytes. Copies end late,
// in any order, and some fail.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/offload/offload_scheduler.h"
#include "kvcast/offload/simple_offload.h"

namespace kvcast::engine {

class HostMemory {
 public:
  struct Scheduled {
    const CacheRequest* request = nullptr;
    int64_t computed = 0;  // before the step
    int64_t tokens = 0;    // in the step
  };
  struct Arrival {
    std::string request;
    bool success = true;
  };

  // Behind an OffloadScheduler, and behind a SimpleOffload. nullptr: it refuses the configuration.
  static std::unique_ptr<HostMemory> Make(std::mt19937_64& random, CacheManager& cache,
                                          const OffloadSchedulerConfig& config);
  static std::unique_ptr<HostMemory> Make(std::mt19937_64& random, CacheManager& cache,
                                          const SimpleOffloadConfig& config);
  ~HostMemory();

  // The request must live until the Step after its End.
  void Add(const CacheRequest& request);
  // Tokens that can be loaded behind those that the GPU has; nullopt: ask again in another step.
  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens);
  // The request has blocks, for `tokens` that are loaded too. False: they will not be loaded.
  bool Load(const CacheRequest& request, int64_t tokens);
  // To be called before the blocks of the request are freed.
  void End(const CacheRequest& request, int64_t computed_tokens);
  void Step(std::span<const Scheduled> scheduled);
  std::vector<Arrival> TakeArrivals();
  // vLLM's connector announces no reset, so that it makes none here.
  void Reset();
  std::vector<Event> TakeEvents();
  // The answer of Match for a request that has waited for all that it may wait for. nullopt: it
  // waits for ever.
  std::optional<int64_t> Probe(const CacheRequest& request, int64_t local_tokens);

 private:
  class Connector;
  class Mirror;
  HostMemory();
  std::unique_ptr<Connector> connector_;  // or
  std::unique_ptr<Mirror> mirror_;
};

}  // namespace kvcast::engine
