// SimpleOffloadReplay: repeats the recorded calls to the engine's simple CPU offload scheduler with
// our scheduler, and compares the results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/conformance/offload/offload_checks.h"
#include "apps/conformance/offload/recorded_gpu_blocks.h"
#include "kvcast/offload/simple_offload.h"

namespace kvcast::tools {

class SimpleOffloadReplay {
 public:
  // `config` is the file's first line. The constructor and Run throw nlohmann's exceptions if a
  // field is missing or of the wrong type, and std::runtime_error for an impossible value.
  SimpleOffloadReplay(const nlohmann::json& config, bool compatible, OffloadChecks& checks);

  // Takes a line of the file: a step, or the final record.
  void Run(std::string_view line);

 private:
  // `ordered` is `op` with its members in the recorded order.
  void Call(const nlohmann::json& op, const nlohmann::ordered_json& ordered);
  void NewRequest(const nlohmann::json& op);
  void AddHashes(const nlohmann::json& op);
  void Match(const nlohmann::json& op);
  void Alloc(const nlohmann::json& op);
  void BuildStep(const nlohmann::json& op);
  std::vector<StepRequest> ReadScheduled(const nlohmann::json& op);
  void CheckCursors(const nlohmann::json& op);
  void CheckTransfers(const nlohmann::json& op);
  void ReadScan(const nlohmann::json& op);
  void Complete(const nlohmann::json& op, const nlohmann::ordered_json& ordered);
  void Reset(const nlohmann::json& op);
  void CheckFinal(const nlohmann::json& record);
  void CheckEvents(const nlohmann::json& recorded);
  BlockContent Content(const nlohmann::json& key) const;
  CacheRequest& Find(const nlohmann::json& op);

  OffloadChecks& checks_;
  SimpleOffloadConfig config_;
  std::unique_ptr<RecordedGpuBlocks> gpu_;
  std::unique_ptr<SimpleOffload> offload_;
  std::map<std::string, CacheRequest> requests_;
  std::vector<int64_t> hash_index_;  // by hash number: the position in a chain
  TransferStep step_;
};

}  // namespace kvcast::tools
