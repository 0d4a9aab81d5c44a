// The recorded scenarios, which are not part of the project: KVCAST_CONFORMANCE names the folder,
// KVCAST_CONFORMANCE_033 that of vLLM 0.33.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace kvcast::testing {

// In order of their names; empty if `variable` does not name the folder.
inline std::vector<std::string> ScenarioFiles(const char* variable = "KVCAST_CONFORMANCE") {
  std::vector<std::string> files;
  const char* root = std::getenv(variable);
  if (root == nullptr) return files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(root) / "scenarios", error)) {
    if (entry.path().string().find(".jsonl") != std::string::npos) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace kvcast::testing
