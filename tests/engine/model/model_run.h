// One random run of a CacheManager and a naive cache, which must agree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "tests/engine/model/model_config.h"
#include "tests/engine/model/naive_cache.h"

namespace kvcast::naive {

// Counts of the cases that the runs reached. The smoke run and longer tests fail if a case was
// reached too rarely.
struct Coverage {
  int64_t configs = 0;
  int64_t calls = 0;
  int64_t hits = 0;
  int64_t hits_inside_blocks = 0;  // hits of one group that end inside a block
  int64_t boundaries = 0;          // lookups that returned a shared prefix boundary
  int64_t refusals = 0;
  int64_t copies = 0;
  int64_t events = 0;
  int64_t external = 0;  // requests with tokens from another tier
  int64_t resets = 0;

  std::string ToString() const;
};

// Makes the calls of an engine in a random order that no real engine has, and compares after each
// call. Reports failures to GoogleTest.
class ModelRun {
 public:
  ModelRun(uint64_t seed, Coverage& coverage);

  // False: CacheManager refuses the random configuration.
  bool valid() const { return cache_ != nullptr; }
  std::string Name() const { return Describe(config_); }

  // Makes one random call.
  void Call();
  // Compares events, free counts and block tables, and checks the manager's invariants. In some
  // calls, also compares all cached keys and the list of blocks that must be zeroed.
  void Compare();
  // Frees all requests. Afterwards no block except the sink blocks may be in use.
  void End();

 private:
  struct Client {
    CacheRequest request;
    int64_t computed = 0;
    int64_t max_tokens = 0;
    // Arrive() caches the blocks of this many tokens. 0: no caching is delayed.
    int64_t arriving = 0;
  };

  PrefixHit LookUp(CacheRequest& request);
  bool Allocate(CacheRequest& request, const AllocateArgs& args);
  void CompareEvents();
  void CompareTables(const CacheRequest& request);
  void CompareKeys();
  void CompareAnswers(CacheRequest& request);

  Client& AnyOf(std::vector<Client>& clients);
  Client TakeFrom(std::vector<Client>& clients);
  CacheRequest NewRequest();
  Client NextClient();
  int64_t StepOnGrid(const Client& client, int64_t from, int64_t step) const;
  AllocateArgs FirstStep(const Client& client, const PrefixHit& hit);
  AllocateArgs LaterStep(const Client& client);
  void Release(Client& client, bool ended);

  void Admit();
  void Continue();
  void Arrive();
  void Finish();
  void Preempt();
  void LookUpOnly();
  void RunCopies();
  void EvictSome();
  void ResetCache();
  void NextStep();

  Random random_;
  Coverage& coverage_;
  CacheConfig config_;
  bool aligned_ = false;  // a Mamba group keeps states at aligned step ends
  std::unique_ptr<CacheManager> cache_;
  std::unique_ptr<Cache> naive_;
  std::vector<Client> running_;
  std::vector<Client> waiting_;
  std::vector<BlockCopy> copies_;
  std::vector<std::pair<Block, Block>> expected_copies_;
  int64_t next_id_ = 0;
};

}  // namespace kvcast::naive
