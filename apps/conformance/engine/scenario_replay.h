// ScenarioReplay: executes a recorded run's operations with our cache manager and compares every
// result.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/conformance/engine/scenario_scheduler.h"
#include "apps/conformance/scenario/scenario.h"
#include "apps/conformance/scenario/scenario_file.h"
#include "kvcast/engine/cache_manager.h"

namespace kvcast::tools {

class ScenarioReplay {
 public:
  // Called with the result of every check. If the check failed, `difference` describes the
  // difference.
  using Check = std::function<void(bool equal, const std::string& difference)>;

  static Result<ScenarioReplay> Create(const ScenarioConfig& config, Check check);

  // False: our run differs so much from the recorded run that the replay cannot continue.
  bool RunStep(const ScenarioStep& step);
  void CheckFinal(const ScenarioFinal& recorded);

 private:
  ScenarioReplay(const ScenarioConfig& config, std::unique_ptr<CacheManager> cache, Check check)
      : config_(config),
        cache_(std::move(cache)),
        check_(std::move(check)),
        scheduler_(config, cache_->config()) {}

  void RunOp(const ScenarioOp& op);
  // Returns the request. If it was never added, reports a difference and adds an empty request.
  CacheRequest& RequestOf(const std::string& id);
  void RunLookup(const ScenarioOp& op);
  void RunAlloc(const ScenarioOp& op);
  void RunCopyRelease(const ScenarioOp& op);
  void RunProbe(const ScenarioProbe& probe);
  void CheckEventCount(const ScenarioOp& op);
  void CheckBoundary(const PrefixHit& hit, int64_t recorded);
  void CheckEvents(const ScenarioStep& step);
  void CheckPayload(const ScenarioStep& step);
  void Expect(int64_t ours, int64_t recorded, const std::string& name);
  void ExpectBlocks(const BlockLists& ours, const BlockLists& recorded, const std::string& name);
  CacheRequest MakeRequest(const std::string& id, const ScenarioPrompt& prompt);

  ScenarioConfig config_;
  std::unique_ptr<CacheManager> cache_;
  Check check_;
  ScenarioScheduler scheduler_;
  std::map<std::string, CacheRequest> requests_;
  std::map<std::string, PrefixHit> lookups_;
  std::set<std::string> running_;
  std::vector<Event> events_;  // not published yet
  std::string where_;          // "step 3 alloc r1"
  bool diverged_ = false;
};

}  // namespace kvcast::tools
