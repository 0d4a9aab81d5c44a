// RuleSets: the different WorkerRules in use. Workers with equal rules share one object, so that a
// query can compare rules by their address.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "router/rules/worker_rules.h"
#include "src/base/reclaim_domain.h"

namespace kvcast::router {

// Threads: the writer (I0 of router/index/README.md).
class RuleSets {
 public:
  explicit RuleSets(ReclaimDomain& reclaim) : reclaim_(reclaim) {}
  RuleSets(const RuleSets&) = delete;
  RuleSets& operator=(const RuleSets&) = delete;

  // Returns the shared object that is equal to `rules`, and counts the caller as a user of it.
  const WorkerRules* Use(const WorkerRules& rules);
  // Ends the caller's use of the object. Before the call, the caller must remove the object from
  // all places where readers find it. The call of the last user retires the object (I11). nullptr:
  // no-op.
  void Leave(const WorkerRules* rules);

 private:
  struct Entry {
    std::unique_ptr<const WorkerRules> rules;
    uint64_t users = 0;
  };

  ReclaimDomain& reclaim_;
  std::vector<Entry> entries_;
};

}  // namespace kvcast::router
