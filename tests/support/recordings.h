// Finds the folders of recorded engine data. The selection in tests/data/recordings is always
// included. Each of the variables KVCAST_CONFORMANCE and KVCAST_CONFORMANCE_033 may add the folder
// of a whole set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/source_dir.h"

namespace kvcast::testing {

struct RecordingSet {
  std::string name;  // used in test names
  std::string folder;
};

inline void PrintTo(const RecordingSet& set, std::ostream* out) { *out << set.folder; }

// Returns the folder `part` (for example "scenarios") of each set that has this folder. If a
// variable names a folder that does not exist, the folder is included, so that its test fails.
inline std::vector<RecordingSet> RecordingSets(std::string_view part) {
  namespace fs = std::filesystem;
  const fs::path shipped = SourceDir() / "tests" / "data" / "recordings";
  std::vector<RecordingSet> sets;
  const auto add = [&](const std::string& name, const fs::path& root) {
    if (!fs::exists(root) || fs::exists(root / part)) sets.push_back({name, root / part});
  };
  add("ShippedUntil2026August", shipped / "until-2026-08");
  add("ShippedVllm033", shipped / "vllm-0.33");
  const auto add_named = [&](const std::string& name, const char* variable) {
    const char* root = std::getenv(variable);
    if (root != nullptr && *root != '\0') add(name, root);
  };
  add_named("WholeUntil2026August", "KVCAST_CONFORMANCE");
  add_named("WholeVllm033", "KVCAST_CONFORMANCE_033");
  return sets;
}

// Returns the files of `set`, plain or compressed, ordered by name.
inline std::vector<std::string> RecordedFiles(const RecordingSet& set) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(set.folder, error)) {
    if (entry.path().string().find(".jsonl") != std::string::npos) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace kvcast::testing
