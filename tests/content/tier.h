// Tier: the host memory behind the GPU, as the engine of the content test sees it: a scheduler of
// copies, its worker, and the memory.
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
  std::vector<uint64_t> prefix;  // by token: names the tokens up to it
  int64_t computed = 0;
  int64_t load_end = 0;
  int64_t outputs_left = 0;
  bool load_failed = false;
  bool starts = true;  // the tier has not seen its table since it was admitted
  bool ended = false;
  std::vector<size_t> known_blocks;  // by group: of the table, told to the tier
  std::vector<size_t> clean_blocks;  // by group: of the table, poisoned or hit
  std::vector<std::vector<BlockId>> new_blocks;
};

struct Scheduled {
  Request* request = nullptr;
  int64_t tokens = 0;
};

struct Arrival {
  enum class Kind : uint8_t {
    kLoaded,
    kFailed,    // the blocks are nobody's
    kGivenUp,   // the copy runs on, and the tier pins what it writes
    kLate,      // the copy runs on, and the blocks must be kept
    kReleased,  // it has ended: they need not any more
  };
  OffloadRequestId request;
  Kind kind = Kind::kLoaded;
  OffloadJobId job;  // late and released ones
};

// What can be loaded: the bytes of the blocks of one key, one behind the other, as a copy would
// bring them.
struct HostChunk {
  SlotId first_slot;
  Digest digest;
  GroupIdx group;
  std::vector<std::vector<std::byte>> blocks;
  bool only_last = false;  // the others hold nothing
};

class Tier {
 public:
  virtual ~Tier() = default;

  virtual void Add(const Request& request) = 0;
  // nullopt: not known yet.
  virtual std::optional<int64_t> Match(const Request& request, int64_t local_tokens,
                                       int64_t now_ms) = 0;
  // False: nothing will be loaded.
  virtual bool AfterAlloc(const Request& request, int64_t external_tokens) = 0;
  virtual void Preempt(const Request& request) = 0;
  // True: its blocks must be kept until its load arrives.
  virtual bool Finish(const Request& request, bool aborted) = 0;
  // `before_loads` is called when the blocks of the step have no reader any more.
  virtual void Step(std::span<const Scheduled> scheduled,
                    const std::function<void()>& before_loads) = 0;
  // The step's computation is submitted.
  virtual void AfterStep() = 0;
  virtual void TakeEnded(int64_t now_ms, std::vector<Arrival>& arrivals) = 0;
  virtual void Reset() = 0;
  virtual std::vector<Event> TakeEvents() = 0;
  // A lookup of the request is decided by what is announced alone.
  virtual bool IsFree(const Request& request) const = 0;
  // The request is still looked at.
  virtual bool Knows(const Request& request) const = 0;
  virtual bool idle() const = 0;
  virtual Copies& copies() = 0;
  virtual std::vector<HostChunk> Readable() const = 0;
  virtual size_t CellOffset(size_t group, int64_t cell) const = 0;  // in a block of Readable
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
