// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace kvcast::bench {
namespace {

// The width of a column of a table.
size_t WidthOf(const std::string& column) { return std::max<size_t>(column.size(), 10); }

}  // namespace

Report::Report(std::string name, std::string method, bool json, ReadShares shares)
    : name_(std::move(name)),
      method_(std::move(method)),
      shares_(shares ? std::move(shares) : [machine = MachineShare()] { return machine.Read(); }),
      json_(json) {
  std::istringstream lines(method_);
  for (std::string line; std::getline(lines, line);) Note(line);
}

void Report::Note(const std::string& text) {
  std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
}

void Report::Figure(const std::string& name, double value, const std::string& unit) {
  std::printf("%-48s %10.4g %-10s\n", name.c_str(), value, unit.c_str());
  std::fflush(stdout);
  lines_.push_back({name, value, unit, false, 0, Bound::kAtMost, std::nullopt});
}

void Report::Target(const std::string& name, double value, const std::string& unit, double target,
                    Bound bound) {
  const bool holds = bound == Bound::kAtMost ? value <= target : value >= target;
  const std::optional<bool> met = judges() ? std::optional(holds) : std::nullopt;
  const char* const verdict = !met ? "not judged" : *met ? "ok" : "MISSED";
  std::printf("%-48s %10.4g %-10s %s %-8.4g %s\n", name.c_str(), value, unit.c_str(),
              bound == Bound::kAtMost ? "<=" : ">=", target, verdict);
  std::fflush(stdout);
  lines_.push_back({name, value, unit, true, target, bound, met});
}

void Report::BeginTable(const std::string& name, std::vector<std::string> columns) {
  table_ = name;
  columns_ = std::move(columns);
  for (const std::string& column : columns_) {
    std::printf(" %*s", static_cast<int>(WidthOf(column)), column.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

void Report::Row(const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    // A large integer is printed with all its digits.
    const bool is_count = values[i] >= 1e4 && values[i] == std::floor(values[i]);
    std::printf(is_count ? " %*.0f" : " %*.4g", static_cast<int>(WidthOf(columns_[i])), values[i]);
  }
  std::printf("\n");
  std::fflush(stdout);
  rows_.push_back(values);
}

bool Report::judges() const {
  const auto shares = shares_();
  return !shares || shares->quiet();
}

int Report::Finish() {
  const auto shares = shares_();
  if (shares) {
    char text[160];
    std::snprintf(text, sizeof(text),
                  "other processes used %.1f %% of the CPU, %.1f %% was stolen; targets are judged "
                  "up to %.0f %%",
                  100 * shares->others, 100 * shares->stolen, 100 * MachineShare::kMostForeign);
    Note(text);
  }
  if (!json_) return 0;
  nlohmann::json targets = nlohmann::json::array();
  nlohmann::json figures = nlohmann::json::array();
  for (const Line& line : lines_) {
    nlohmann::json entry = {{"name", line.name}, {"figure", line.value}, {"unit", line.unit}};
    if (line.has_target) {
      entry.update({{"target", line.target},
                    {"at_least", line.bound == Bound::kAtLeast},
                    {"met", line.met ? nlohmann::json(*line.met) : nlohmann::json()}});
    }
    (line.has_target ? targets : figures).push_back(std::move(entry));
  }
  nlohmann::json report = {
      {"name", name_}, {"method", method_}, {"targets", targets}, {"figures", figures}};
  for (const std::vector<double>& row : rows_) {
    nlohmann::json object;
    for (size_t i = 0; i < row.size(); ++i) object[columns_[i]] = row[i];
    report[table_].push_back(std::move(object));
  }
  if (shares) {
    report["machine"] = {{"others", shares->others}, {"stolen", shares->stolen}};
  }
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace kvcast::bench
