// OffloadManagerReplay: recorded calls of the engine's CPU offloading manager, made to ours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/conformance/offload/offload_checks.h"
#include "kvcast/offload/offload_manager.h"

namespace kvcast::tools {

class OffloadManagerReplay {
 public:
  // `config` is the file's first line. This and Run throw what nlohmann throws on a missing or
  // mistyped field, and std::runtime_error on a value that cannot be.
  OffloadManagerReplay(const nlohmann::json& config, bool compatible, OffloadChecks& checks);

  void Run(const nlohmann::json& op);

 private:
  std::vector<OffloadKey> Keys(const nlohmann::json& numbers) const;
  nlohmann::json Numbers(const std::vector<OffloadKey>& keys) const;

  // What ours answers, in the form of the recording; absent where the recording has none.
  void Call(const std::string& name, const nlohmann::json& op);
  nlohmann::json Lookup(const std::vector<OffloadKey>& keys);
  nlohmann::json PrepareStore(const std::vector<OffloadKey>& keys);
  nlohmann::json TakeEvents();
  void CheckStats(const nlohmann::json& recorded);
  void CheckState(const nlohmann::json& recorded, const OffloadManager::State& state);

  OffloadChecks& checks_;
  std::unique_ptr<OffloadManager> manager_;
  std::vector<OffloadKey> keys_;
  std::unordered_map<OffloadKey, int64_t> numbers_;
};

}  // namespace kvcast::tools
