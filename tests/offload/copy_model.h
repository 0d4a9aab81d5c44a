// CopyModel: an engine with a real CacheManager, an OffloadScheduler, and workers that really copy:
// every token's place in every GPU block and host slot holds a number that says which prefix of
// which group it is the KV of. Copies read and write as late as they may. So a block that is used
// again under a running copy, or stored or loaded under a wrong key, shows up as a wrong number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "kvcast/cache_manager.h"
#include "kvcast/offload_scheduler.h"

namespace kvcast::offload {

// A lookup of the engine that nothing held up: all that counted was what is announced.
struct CopyModelLookup {
  const CacheRequest& request;
  int64_t local_tokens = 0;     // the hit on the GPU
  int64_t external_tokens = 0;  // what can be loaded behind it
};

struct CopyModelConfig {
  std::vector<GroupSpec> groups;
  int64_t blocks_per_chunk = 1;
  std::vector<int64_t> chunk_bytes;  // empty: a page each
  int64_t num_blocks = 120;
  int64_t capacity_pages = 100;
  bool compatible = false;
  uint64_t seed = 1;
  int steps = 400;
  double failure_rate = 0;  // of copies
  double reset_rate = 0;    // of host memory, a step
  // Told of all events, GPU first, before each lookup that is told of.
  std::function<void(std::vector<Event>)> on_events;
  std::function<void(const CopyModelLookup&)> on_lookup;
};

struct CopyModelCounts {
  int64_t loads = 0;
  int64_t stores = 0;
  int64_t flushes = 0;
  int64_t preemptions = 0;
  int64_t failures = 0;
  int64_t resets = 0;
  int64_t finished = 0;
  int64_t poisoned = 0;  // tokens announced with other content than their key says
  int64_t garbled = 0;   // tokens read by attention with wrong content
};

// Configurations with different groups, block sizes and pools: 0 to kCopyModelMixes - 1.
inline constexpr int kCopyModelMixes = 7;
CopyModelConfig CopyModelMix(int number);

class CopyModel {
 public:
  explicit CopyModel(CopyModelConfig config);
  ~CopyModel();

  // Runs all steps, then until nothing is left. Checks invariants on the way.
  CopyModelCounts Run();

 private:
  using Cells = std::vector<uint64_t>;  // by token
  enum class State : uint8_t { kWaiting, kLoading, kLoaded, kRunning };
  struct Request {
    OffloadRequestId id;
    CacheRequest cache;
    State state = State::kWaiting;
    std::vector<uint64_t> prefix;  // by token: names the prefix that ends with it
    int64_t computed = 0;
    int64_t load_end = 0;
    int64_t outputs_left = 0;
    bool starts = true;
    bool aborted = false;
    bool load_failed = false;
    std::vector<size_t> known_blocks;  // by group: of the table, reported to the scheduler
    std::vector<std::vector<BlockId>> new_blocks;
  };
  struct Copy {
    OffloadJob job;
    std::vector<uint64_t> prefix;  // of the request
    int64_t steps_left = 0;
  };

  void AddRequest();
  void Grow(Request& request, int64_t tokens);
  void ScheduleRunning();
  void AdmitWaiting();
  bool StartLoad(Request& request, const PrefixHit& hit, int64_t external);
  bool ScheduleTokens(Request& request, const PrefixHit* hit);
  void NoteNewBlocks(Request& request);
  OffloadMatch Lookup(Request& request, const PrefixHit& hit);
  void Preempt(Request& request);
  void Disturb();
  void Work();
  void Execute(const Copy& copy);
  void CopyGroup(const Copy& copy, size_t group, size_t first_block, size_t first_slot);
  void Compute();
  void CheckReads(const Request& request);
  void EndCopies(bool all);
  void Finish(Request& request, bool aborted);
  void SampleOrFinish();
  void Step(bool add);

  static uint64_t Value(uint64_t prefix, size_t group) { return prefix * 31 + group + 1; }
  Cells& Gpu(BlockId block) { return gpu_.at(block.value); }
  int64_t Random(int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(random_);
  }
  bool Chance(double rate) { return std::bernoulli_distribution(rate)(random_); }
  Request* Find(OffloadRequestId id);

  const CopyModelConfig config_;
  std::mt19937_64 random_;
  BlockHasher hasher_;
  std::unique_ptr<CacheManager> cache_;
  std::unique_ptr<OffloadScheduler> scheduler_;
  std::vector<Cells> gpu_;
  std::map<std::pair<uint32_t, int64_t>, Cells> host_;  // by first slot and place in the chunk
  std::deque<std::unique_ptr<Request>> requests_;       // in order of arrival
  std::vector<std::vector<TokenId>> past_;              // prompts and answers to go on from
  struct Scheduled {
    Request* request;
    int64_t tokens;
  };
  std::vector<Scheduled> scheduled_;
  std::vector<OffloadRequestId> preempted_;
  std::vector<Copy> deferred_stores_;
  std::map<OffloadJobId, Copy> copies_;
  CopyModelCounts counts_;
  uint64_t next_id_ = 1;
  int64_t now_ms_ = 0;
  int64_t budget_ = 0;
  TokenId next_token_ = 1;
};

}  // namespace kvcast::offload
