// Names of HTTP headers and hosts do not depend on the case of ASCII letters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kvcast {

// Returns the text with its ASCII letters in lower case. Other bytes are kept.
inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace kvcast
