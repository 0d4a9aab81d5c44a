// Setting: a number for a test program, from an environment variable.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace kvcast::testing {

// Returns the integer in the environment variable, or `default_value` if the variable is not set.
// Ends the program if the value is not an integer of 0 or more.
inline int64_t Setting(const char* name, int64_t default_value) {
  const char* const given = std::getenv(name);
  if (given == nullptr) return default_value;
  const std::string_view text(given);
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    std::fprintf(stderr, "%s: must be an integer of at least 0, not \"%s\"\n", name, given);
    std::abort();
  }
  return value;
}

}  // namespace kvcast::testing
