// Report: what every benchmark prints. One line a figure (name, value, unit, target, ok or MISSED),
// and with --json one object as the last line of stdout.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::bench {

enum class Bound : uint8_t { kAtMost, kAtLeast };

class Report {
 public:
  // Begins with `method` as comment lines: what is measured, and against what.
  Report(std::string name, std::string method, bool json);

  // A line that is no figure. With "# " before it.
  void Note(const std::string& text);
  // For information.
  void Figure(const std::string& name, double value, const std::string& unit);
  void Target(const std::string& name, double value, const std::string& unit, double target,
              Bound bound = Bound::kAtMost);
  // Prints the JSON object if it was asked for. The exit code: 0; missed targets are said, not
  // failures.
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
