// A cache manager made of plain lists, for comparison with CacheManager after each call.
//
// One class serves all kinds. Each rule is an `if` statement that tests the kind.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/model/naive_lookup.h"
#include "tests/engine/model/naive_pool.h"

namespace kvcast::naive {

class Cache {
 public:
  // `config`: a configuration that CacheManager::Create has accepted.
  Cache(const CacheConfig& config, BlockHasher hasher, const EventOptions& events);

  const Grid& grid() const { return grid_; }
  // The longest prefix of `tokens` tokens, in steps of `unit` tokens, whose Mamba state a later
  // request can use.
  int64_t LastState(int64_t tokens, int64_t unit) const;

  PrefixHit GetComputedBlocks(const CacheRequest& request);
  std::vector<int64_t> GetComputedTokensPerGroup(const CacheRequest& request);
  bool AllocateSlots(const CacheRequest& request, const AllocateArgs& args,
                     std::vector<Blocks>& added);
  void CacheBlocks(const CacheRequest& request, int64_t tokens);
  std::vector<std::pair<Block, Block>> TakeCopies();
  void ReleaseCopies(const std::vector<std::pair<Block, Block>>& copies);
  void Free(const CacheRequest& request, bool ended);
  bool Reset() { return pool_.Reset(); }
  void Evict(Block block) { pool_.Evict(block); }
  void BeginStep();
  // Returns the blocks that must be zeroed, in the order of the groups.
  Blocks TakeBlocksToZero();
  std::vector<Event> TakeEvents() { return pool_.TakeEvents(); }

  size_t num_free() const { return pool_.num_free(); }
  Blocks Table(const std::string& request, size_t group) const;
  int64_t CommonPrefixBlocks(const std::string& request, size_t group) const;
  // Digest and number of copies of every cached prefix of a group.
  std::vector<std::pair<Digest, int64_t>> CachedKeys(size_t group) const;

 private:
  // The state after `tokens` tokens, which a step keeps in the block at `index`.
  struct Checkpoint {
    int64_t index = 0;
    int64_t tokens = 0;
  };
  // The blocks of a request in one group.
  struct Held {
    Blocks table;
    int64_t num_cached = 0;
    // The first part of the block at this index is shared. The block must be copied before a write.
    std::optional<int64_t> shared_tail;
    // Used in Mamba align mode.
    bool started = false;
    std::optional<int64_t> last_state;
    std::optional<Checkpoint> checkpoint;  // of the latest step
  };
  // All lengths are in tokens from the beginning of the request.
  struct Lengths {
    int64_t slots = 0;    // end of the step, drafts included
    int64_t main = 0;     // end of the step without drafts
    int64_t local = 0;    // end of the computed tokens and of the hit
    int64_t total = 0;    // end of the external tokens
    int64_t encoder = 0;  // tokens of the encoder
    int64_t prefill = 0;  // end of the prefill
  };
  struct Request {
    std::vector<Held> groups;
    int64_t boundary = 0;
  };

  Lengths LengthsOf(const CacheRequest& request, const AllocateArgs& args) const;
  int64_t Cap(size_t group) const;
  int64_t Demand(size_t group, const Request* request, const Blocks& hits, Lengths lengths,
                 bool capped) const;
  int64_t MambaDemand(size_t group, const Held* held, const Blocks& hits, const Lengths& lengths,
                      bool capped) const;
  bool Fits(const Request* request, const std::vector<Blocks>& hits, const Lengths& lengths,
            bool capped, int64_t spare) const;
  void ReleaseSkipped(Request& request, int64_t processed, int64_t prompt);
  void Release(Held& held, int64_t first, int64_t last);
  void AddHit(size_t group, Held& held, const Blocks& hits, const Lengths& lengths);
  void AddExternal(size_t group, Held& held, const Lengths& lengths);
  void AddNew(size_t group, Held& held, const Lengths& lengths, Blocks& added);
  void AddState(size_t group, Held& held, const Lengths& lengths, Blocks& added);
  Block CopyTail(Held& held);
  void CacheGroup(size_t group, Held& held, const CacheRequest& request, int64_t boundary,
                  int64_t tokens);
  std::vector<int64_t> Boundaries(size_t group, const CacheRequest& request,
                                  int64_t boundary) const;
  std::optional<Checkpoint> CheckpointOf(size_t group, const Held* held,
                                         const Lengths& lengths) const;
  void CacheCheckpoint(size_t group, Held& held, const CacheRequest& request, int64_t boundary);
  bool CacheStateAt(size_t group, Block block, const CacheRequest& request, int64_t tokens);
  void CacheStateTail(size_t group, Held& held, const CacheRequest& request, int64_t tokens);
  void CacheTail(size_t group, Held& held, const CacheRequest& request, int64_t tokens);
  int64_t CacheableTokens(size_t group, int64_t tokens) const;
  bool Keeps(size_t group, int64_t index, const std::vector<int64_t>& boundaries) const;

  CacheConfig config_;
  bool drops_ = false;  // a group drops a block for its draft head
  Grid grid_;
  PrefixNames names_;
  Pool pool_;
  Lookup lookup_;
  std::map<std::string, Request> requests_;
  std::vector<std::set<Key>> cached_now_;  // per group: Mamba states that this step cached
  std::vector<Blocks> to_zero_;            // per group
  std::vector<std::vector<std::pair<Block, Block>>> copies_;  // per group
};

}  // namespace kvcast::naive
