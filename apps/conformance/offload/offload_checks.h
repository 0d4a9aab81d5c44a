// OffloadChecks: counts the checks of one file of recorded offload data into a report.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "apps/conformance/conformance.h"

namespace kvcast::tools {

class OffloadChecks {
 public:
  OffloadChecks(std::string path, ConformanceReport& report)
      : path_(std::move(path)), report_(report) {}

  // Sets the line of the file to which the next checks belong.
  void set_line(size_t line) { line_ = line; }

  void Check(bool equal, const std::string& difference) {
    ++report_.compared;
    if (equal) {
      ++report_.equal;
    } else if (!std::exchange(differs_, true)) {
      report_.first_differences.push_back(path_ + ":" + std::to_string(line_) + ": " + difference);
    }
  }
  // Compares as JSON values. A difference is reported with both values.
  void Expect(const nlohmann::json& ours, const nlohmann::json& recorded, const std::string& name);
  void Unsupported() { ++report_.unsupported; }

 private:
  const std::string path_;
  ConformanceReport& report_;
  size_t line_ = 0;
  bool differs_ = false;
};

}  // namespace kvcast::tools
