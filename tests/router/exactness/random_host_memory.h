// Host memory behind a random engine. Its scheduler plans copies, and no bytes are copied. Copies
// end late and in any order, and some fail.
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

  // Makes host memory with an OffloadScheduler or with a SimpleOffload. nullptr: the scheduler
  // refuses the configuration.
  static std::unique_ptr<HostMemory> Make(std::mt19937_64& random, CacheManager& cache,
                                          const OffloadSchedulerConfig& config);
  static std::unique_ptr<HostMemory> Make(std::mt19937_64& random, CacheManager& cache,
                                          const SimpleOffloadConfig& config);
  ~HostMemory();

  // The caller must keep `request` valid until the Step after the End of the request.
  void Add(const CacheRequest& request);
  // Returns the number of tokens that can be loaded in addition to the GPU's tokens. nullopt: the
  // caller must call Match again in a later step.
  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens);
  // Must be called when the request has its blocks, including the blocks of the `tokens` tokens to
  // load. Returns false if the engine loads nothing.
  bool Load(const CacheRequest& request, int64_t tokens);
  // Must be called before the blocks of the request are freed.
  void End(const CacheRequest& request, int64_t computed_tokens);
  void Step(std::span<const Scheduled> scheduled);
  std::vector<Arrival> TakeArrivals();
  // Does nothing for vLLM's connector, because this connector announces no reset.
  void Reset();
  std::vector<Event> TakeEvents();
  // Returns the answer of Match. If the answer is nullopt at first, returns the answer after the
  // time limit of the request. Returns nullopt if the request waits for copies and has no time
  // limit.
  std::optional<int64_t> Probe(const CacheRequest& request, int64_t local_tokens);

 private:
  class Connector;
  class Mirror;
  HostMemory();
  std::unique_ptr<Connector> connector_;  // exactly one of connector_ and mirror_ is set
  std::unique_ptr<Mirror> mirror_;
};

}  // namespace kvcast::engine
