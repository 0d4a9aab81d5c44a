// Report: the output of every benchmark. Each figure has one line: name, value and unit. A figure
// with a target also has the target, and "ok" or "MISSED". With --json, the last line of stdout is
// one JSON object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::bench {

enum class Bound : uint8_t { kAtMost, kAtLeast };

class Report {
 public:
  // Prints `method` as comment lines. `method` describes the measurement and the baseline.
  Report(std::string name, std::string method, bool json);

  // Prints a line that is not a figure, with "# " before it.
  void Note(const std::string& text);
  // Prints a figure without a target.
  void Figure(const std::string& name, double value, const std::string& unit);
  void Target(const std::string& name, double value, const std::string& unit, double target,
              Bound bound = Bound::kAtMost);
  // Prints the JSON object if --json was given. Returns exit code 0, also if a target was missed.
  int Finish();

 private:
  struct Line {
    std::string name;
    double value;
    std::string unit;
    bool has_target;
    double target;
    bool met;
  };

  const std::string name_;
  const std::string method_;
  const bool json_;
  std::vector<Line> lines_;
};

}  // namespace kvcast::bench
