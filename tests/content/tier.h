// Tier: the host memory of the engine in the content test. A tier has a scheduler of copies, the
// scheduler's worker, and the memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/offload/offload_job.h"
#include "kvcast/offload/offload_manager.h"
#include "tests/content/copies.h"
#include "tests/content/kv_memory.h"

namespace kvcast::content {

struct Request {
  enum class State : uint8_t { kWaiting, kLoading, kLoaded, kRunning };

  OffloadRequestId id;
  CacheRequest cache;
  State state = State::kWaiting;
  std::vector<uint64_t> prefix;  // by token: code of all tokens up to and including this token
  int64_t computed = 0;
  int64_t load_end = 0;
  int64_t outputs_left = 0;
  bool load_failed = false;
  bool starts = true;  // the tier has not received the table since the admission
  bool ended = false;
  std::vector<size_t> known_blocks;  // by group: blocks of the table that were reported to the tier
  std::vector<size_t> clean_blocks;  // by group: blocks of the table that were poisoned or hit
  std::vector<std::vector<BlockId>> new_blocks;
};

struct Scheduled {
  Request* request = nullptr;
  int64_t tokens = 0;
};

struct Arrival {
  enum class Kind : uint8_t {
    kLoaded,
    kFailed,    // the copy has failed, and the engine may free the blocks
    kGivenUp,   // the copy still runs, and the tier pins its destination
    kLate,      // the copy still runs, and the engine must keep the blocks
    kReleased,  // the copy has ended, and the engine may free the blocks
  };
  OffloadRequestId request;
  Kind kind = Kind::kLoaded;
  OffloadJobId job;  // for kLate and kReleased
};

// A loadable chunk: the bytes of the blocks of one key in order, as a load would copy them.
struct HostChunk {
  SlotId first_slot;
  Digest digest;
  GroupIdx group;
  std::vector<std::vector<std::byte>> blocks;
  bool only_last = false;  // only the last block has content
};

class Tier {
 public:
  virtual ~Tier() = default;

  virtual void Add(const Request& request) = 0;
  // Returns the number of tokens that the tier can load after the first `local_tokens` tokens.
  // nullopt: the number is not known yet. The caller must call again in a later step.
  virtual std::optional<int64_t> Match(const Request& request, int64_t local_tokens,
                                       int64_t now_ms) = 0;
  // False: the tier refuses the load.
  virtual bool AfterAlloc(const Request& request, int64_t external_tokens) = 0;
  virtual void Preempt(const Request& request) = 0;
  // True: the engine must keep the request's blocks until its load arrives.
  virtual bool Finish(const Request& request, bool aborted) = 0;
  // Calls `before_loads` when no copy reads the blocks of the step any more.
  virtual void Step(std::span<const Scheduled> scheduled,
                    const std::function<void()>& before_loads) = 0;
  // Called after the step's computation was submitted.
  virtual void AfterStep() = 0;
  virtual void TakeEnded(int64_t now_ms, std::vector<Arrival>& arrivals) = 0;
  virtual void Reset() = 0;
  virtual std::vector<Event> TakeEvents() = 0;
  // True if the announced blocks alone decide a lookup of the request.
  virtual bool IsFree(const Request& request) const = 0;
  // True if the tier still refers to the request.
  virtual bool Knows(const Request& request) const = 0;
  virtual bool idle() const = 0;
  virtual Copies& copies() = 0;
  virtual std::vector<HostChunk> Readable() const = 0;
  virtual size_t CellOffset(size_t group, int64_t cell) const = 0;  // in a block of Readable()
  virtual Status CheckInvariants() const = 0;
};

struct TierParts {
  const RunConfig& config;
  CacheManager& cache;
  KvMemory& memory;
  GpuStream& stream;
  RunCounts& counts;
};
std::unique_ptr<Tier> MakeConnectorTier(const TierParts& parts);
std::unique_ptr<Tier> MakeSimpleTier(const TierParts& parts);

}  // namespace kvcast::content
