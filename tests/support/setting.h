// Setting: a number for a test program, from an environment variable.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "src/base/check.h"

namespace kvcast::testing {

// Returns the integer in the environment variable, or `otherwise` if the variable is not set. A
// value that is not an integer ends the program.
inline int64_t Setting(const char* name, int64_t otherwise) {
  const char* const given = std::getenv(name);
  if (given == nullptr) return otherwise;
  const std::string_view text(given);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  KV_CHECK(error == std::errc() && end == text.data() + text.size());
  return value;
}

}  // namespace kvcast::testing
