// OffloadRunReplay: repeats the recorded steps of an engine with our scheduler, and compares the
// results. The engine has host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/conformance/offload/offload_call_log.h"
#include "apps/conformance/offload/offload_checks.h"
#include "apps/conformance/offload/offload_names.h"
#include "kvcast/offload/offload_scheduler.h"

namespace kvcast::tools {

// Throws the exceptions of OffloadManagerReplay.
class OffloadRunReplay {
 public:
  OffloadRunReplay(const nlohmann::json& config, bool compatible, OffloadChecks& checks);

  void Run(std::string_view line);

 private:
  using Json = nlohmann::json;
  using Ordered = nlohmann::ordered_json;
  struct Request {
    CacheRequest cache;
    OffloadRequestId id;
  };

  void Op(const Json& op, const Ordered& ordered);
  void NewRequest(const Json& op);
  void Hashes(const Json& op);
  void Match(const Json& op);
  void Alloc(const Json& op);
  void Step(const Json& op, const Ordered& ordered);
  void CheckPlan(const OffloadPlan& plan, const Json& op);
  void Output(const Json& op);
  void Completions(const Json& op, const Ordered& ordered);
  void MergeStats(const OffloadSchedulerStats& taken);
  void ResetCache(const Json& op);

  // The parts of an OffloadStep.
  std::vector<OffloadStep::Scheduled> Scheduled(const Json& op, const Ordered& ordered);
  std::vector<OffloadStep::Tail> Tails(const Ordered& ordered);

  void CheckStep(const Json& step);
  void CheckStats(const Json& recorded);
  void CheckEvents(const Json& step);
  void CheckFinal(const Json& state);

  Request& Get(const std::string& name) { return *requests_.at(name); }
  // Returns the recorded calls. The keys of a touch are expanded from a range.
  Json ExpandTouches(const Json& calls);
  Json JobJson(const OffloadJob& job) const;
  Json NextStored(OffloadRequestId id) const;

  OffloadChecks& checks_;
  const bool literal_tokens_;
  OffloadNames names_;
  OffloadCallLog calls_;
  std::unique_ptr<OffloadScheduler> scheduler_;
  std::unordered_map<std::string, std::unique_ptr<Request>> requests_;
  std::map<std::string, std::vector<std::vector<BlockId>>> blocks_;  // of the current step
  OffloadSchedulerStats stats_;                                      // of the current step
  bool engine_failed_ = false;  // the engine failed during the most recent step
  Json expected_loads_ = Json::object();
};

}  // namespace kvcast::tools
