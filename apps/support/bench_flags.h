// Functions that add the subcommands of `kvcast bench` and their flags.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace kvcast::bench {

// The function of the subcommand that the user gave. It returns the exit code.
using Command = std::function<int()>;

inline void AddNumber(CLI::App& sub, const std::string& flag, int64_t& value, int64_t low,
                      int64_t high, const std::string& text) {
  sub.add_option(flag, value, text)->check(CLI::Range(low, high))->capture_default_str();
}

// The flag also accepts a real number, for example 1e7. The lowest number is 1,000.
inline void AddCount(CLI::App& sub, const std::string& flag, int64_t& value,
                     const std::string& text, double high = 2e8) {
  sub.add_option_function<double>(
         flag, [&value](double number) { value = std::llround(number); }, text)
      ->check(CLI::Range(1e3, high))
      ->default_str(std::to_string(value));
}

inline void AddJson(CLI::App& sub, bool& json) {
  sub.add_flag("--json", json, "print one JSON object as the last line of stdout");
}

// Adds a subcommand. A parsed subcommand sets `command` to a call of `run`. `command` must outlive
// `bench`. `add_flags(sub, options)` adds the flags that users can set.
template <typename Options, typename AddFlags>
void AddBench(CLI::App& bench, Command& command, const char* name, const char* text,
              int (*run)(const Options&), AddFlags add_flags) {
  CLI::App* sub = bench.add_subcommand(name, text);
  const auto options = std::make_shared<Options>();
  add_flags(*sub, *options);
  sub->callback([&command, options, run] { command = [options, run] { return run(*options); }; });
}

}  // namespace kvcast::bench
