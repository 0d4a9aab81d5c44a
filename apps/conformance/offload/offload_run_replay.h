// OffloadRunReplay: recorded steps of an engine with host memory, made with our scheduler.
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

// Throws as OffloadManagerReplay does.
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

  // Of what was built in Step.
  std::vector<OffloadStep::Scheduled> Scheduled(const Json& op, const Ordered& ordered);
  std::vector<OffloadStep::Tail> Tails(const Ordered& ordered);

  void CheckStep(const Json& step);
  void CheckStats(const Json& recorded);
  void CheckEvents(const Json& step);
  void CheckFinal(const Json& state);

  Request& Get(const std::string& name) { return *requests_.at(name); }
  // The recorded calls, with the keys that a touch names by range.
  Json ExpandTouches(const Json& calls);
  Json JobJson(const OffloadJob& job) const;
  Json NextStored(OffloadRequestId id) const;

  OffloadChecks& checks_;
  const bool literal_tokens_;
  OffloadNames names_;
  OffloadCallLog calls_;
  std::unique_ptr<OffloadScheduler> scheduler_;
  std::unordered_map<std::string, std::unique_ptr<Request>> requests_;
  std::map<std::string, std::vector<std::vector<BlockId>>> blocks_;  // of the step under way
  OffloadSchedulerStats stats_;                                      // of the step under way
  bool engine_failed_ = false;  // in the middle of the last step
  Json expected_loads_ = Json::object();
};

}  // namespace kvcast::tools
