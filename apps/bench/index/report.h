// Report: the output of a benchmark. Each figure has one line: name, value and unit.
// A figure with a target also has the target, and "ok" or "MISSED". If other processes and the
// hypervisor together used more of the CPU than MachineShare::kMostForeign, the figure has "not
// judged" instead. With --json, the last line of stdout is one JSON object; `met` of a target that
// was not judged is null.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/machine/machine_share.h"

namespace kvcast::bench {

enum class Bound : uint8_t { kAtMost, kAtLeast };

class Report {
 public:
  using ReadShares = std::function<std::optional<MachineShare::Shares>()>;
  // Prints `method` as comment lines. `method` describes the measurement and the baseline.
  // `shares` returns the shares of the CPU that other processes and the hypervisor used since the
  // start. Empty: MachineShare measures the shares.
  Report(std::string name, std::string method, bool json, ReadShares shares = {});

  // Prints a line that is not a figure, with "# " before it.
  void Note(const std::string& text);
  // Prints a figure without a target.
  void Figure(const std::string& name, double value, const std::string& unit);
  void Target(const std::string& name, double value, const std::string& unit, double target,
              Bound bound = Bound::kAtMost);
  // Prints the header of a table. Row prints a row with one value for each column. In the JSON
  // object, the table is an array with this name. It has one object per row, with one member per
  // column. A report has at most one table.
  void BeginTable(const std::string& name, std::vector<std::string> columns);
  void Row(const std::vector<double>& values);
  // Prints the shares of the CPU that other processes and the hypervisor used since the report was
  // made. If --json was given, also prints the JSON object. Returns exit code 0, also if a target
  // was missed.
  int Finish();

 private:
  struct Line {
    std::string name;
    double value;
    std::string unit;
    bool has_target;
    double target;
    Bound bound;
    std::optional<bool> met;  // nullopt: not judged
  };

  // True: since the start, the machine was quiet enough to judge targets, or its shares are
  // unknown.
  bool judges() const;

  const std::string name_;
  const std::string method_;
  const ReadShares shares_;
  const bool json_;
  std::vector<Line> lines_;
  std::string table_;  // name of the table; empty: no table
  std::vector<std::string> columns_;
  std::vector<std::vector<double>> rows_;
};

}  // namespace kvcast::bench
