// OffloadManagerReplay: repeats the recorded calls to vLLM's CPU offloading manager with our
// OffloadManager, and compares the results.
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
  // `config` is the first line of the recording. `compatible`: see RunOffloadConformance. The
  // constructor and Run throw nlohmann's exceptions if a field is missing or of the wrong type, and
  // std::runtime_error for an impossible value. Run throws std::out_of_range for a key number that
  // the recording has not defined.
  OffloadManagerReplay(const nlohmann::json& config, bool compatible, OffloadChecks& checks);

  void Run(const nlohmann::json& op);

 private:
  std::vector<OffloadKey> Keys(const nlohmann::json& numbers) const;
  std::vector<int64_t> Ends(const nlohmann::json& numbers) const;
  nlohmann::json Numbers(const std::vector<OffloadKey>& keys) const;

  void Call(const std::string& name, const nlohmann::json& op);
  // The next three functions return the result of OffloadManager in the form of the recording.
  // PrepareStore returns null if OffloadManager refuses the store.
  nlohmann::json Lookup(const std::vector<OffloadKey>& keys, OffloadRequestId request);
  nlohmann::json PrepareStore(const std::vector<OffloadKey>& keys, const OffloadUse& use);
  nlohmann::json TakeEvents();
  void CheckStats(const nlohmann::json& recorded);
  void CheckState(const nlohmann::json& recorded, const OffloadManager::State& state);

  OffloadChecks& checks_;
  std::unique_ptr<OffloadManager> manager_;
  std::vector<OffloadKey> keys_;
  std::vector<int64_t> ends_;  // by key number: tokens of the prefix that ends with the chunk
  std::unordered_map<OffloadKey, int64_t> numbers_;
};

}  // namespace kvcast::tools
