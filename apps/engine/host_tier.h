// HostTier: the host memory behind a simulated engine.
//
// An offload scheduler chooses the copies, and the tier executes them. The bytes of a block
// identify the prefix that ends with the block. Check can therefore find a block with wrong bytes.
//
// Order of the calls for a request: Match, allocation on the GPU, AfterAlloc, BuildStep in every
// step, Finish.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "apps/engine/host_tier_config.h"
#include "apps/engine/tier_copies.h"
#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::tools {

class ConnectorTier;
class MirrorTier;

class HostTier {
 public:
  // The GPU pool and the host pool are ordinary memory, and `backend` copies between them. `cache`
  // must outlive the tier. An error about `config` names the field.
  static Result<std::unique_ptr<HostTier>> Create(const HostTierConfig& config, CacheManager& cache,
                                                  std::unique_ptr<CopyBackend> backend);
  // The GPU pool is memory of `device`.
  static Result<std::unique_ptr<HostTier>> Create(const HostTierConfig& config, CacheManager& cache,
                                                  const CudaDevice& device);
  ~HostTier();

  // Writes the bytes of the blocks that tokens [begin, end) complete. Must be called after the
  // model has computed these tokens.
  void Compute(const CacheRequest& request, int64_t begin, int64_t end);
  // Checks the bytes of the whole blocks among the first `tokens` tokens of the request, in all
  // groups. Counts the checked blocks and the wrong blocks.
  void Check(const CacheRequest& request, int64_t tokens);
  int64_t checked_blocks() const { return checked_blocks_; }
  int64_t wrong_blocks() const { return wrong_blocks_; }
  int64_t stored_blocks() const { return copies_.stored_blocks(); }
  int64_t loaded_blocks() const { return copies_.loaded_blocks(); }

  // Returns how many tokens after the `local_tokens` on the GPU can be loaded. These tokens may
  // reach the end of the request; the engine then computes the last token again. nullopt: the
  // number is not known yet; call again in the next step. The request must exist until the
  // BuildStep after Finish. `now_ms` is the time of any clock that does not go back.
  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens, int64_t now_ms);
  // Call after the request's blocks are allocated. The load of the request's external tokens starts
  // with the next BuildStep. Not ok: `external_tokens` is not the result of the latest Match in
  // this step. Then nothing is loaded.
  Status AfterAlloc(const CacheRequest& request, int64_t external_tokens);
  // Preempt and Finish must be called before the request's GPU blocks are freed. `computed_tokens`:
  // tokens with KV in these blocks.
  void Preempt(const CacheRequest& request, int64_t computed_tokens);
  void Finish(const CacheRequest& request, int64_t computed_tokens);

  // Ends the scheduling of a step: waits for the copies that must not run during the step, and
  // starts the loads of the step. The bytes of a load arrive at any time before CompleteLoad
  // returns.
  void BuildStep(std::span<const TierRequest> scheduled);
  // Call after the step has been computed.
  void EndStep();
  // Waits for the started stores and reports them to the scheduler.
  void CompleteStores();
  // Waits for a request's load and reports it to the scheduler. False: the load failed.
  bool CompleteLoad(const CacheRequest& request);

  // True: copies are in progress, or BuildStep must be called even if no request is scheduled.
  bool has_pending_work() const;
  // Events since the previous call, in order of occurrence.
  std::vector<Event> TakeEvents();

  // For tests: returns the number of host-memory blocks that copies and matches protect from
  // eviction. The connector counts slots.
  int64_t held_blocks() const;
  // Not ok: a bug in kvcast; the message names the contradiction.
  Status CheckInvariants() const;

 private:
  using Scheduler = std::variant<std::unique_ptr<MirrorTier>, std::unique_ptr<ConnectorTier>>;

  HostTier(CacheManager& cache, Scheduler scheduler);
  static Result<std::unique_ptr<HostTier>> Make(const HostTierConfig& config, CacheManager& cache,
                                                const TierCopies::MakeMemory& make_memory);

  // Sets blocks_ to the whole blocks that end in (begin, end], and words_ to their content.
  void ListBlocks(const CacheRequest& request, int64_t begin, int64_t end);

  CacheManager& cache_;
  const Scheduler scheduler_;
  TierCopies& copies_;           // owned by the scheduler
  std::vector<BlockId> blocks_;  // scratch
  std::vector<uint64_t> words_;  // scratch
  int64_t checked_blocks_ = 0;
  int64_t wrong_blocks_ = 0;
};

}  // namespace kvcast::tools
