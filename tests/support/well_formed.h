// IsWellFormed: a check of the SVG documents that the project writes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::testing {

// Success: every tag is <name attribute="value" ...>, <name .../> or </name>, the elements are
// nested, and the document has one root. Comments and CDATA are not supported.
inline ::testing::AssertionResult IsWellFormed(std::string_view document) {
  static const std::regex kTag(R"re(<(/?)(\w+)(?: [\w:-]+="[^"<]*")*(/?)>)re");
  std::vector<std::string> open;
  int roots = 0;
  for (size_t start = document.find('<'); start != std::string_view::npos;
       start = document.find('<', start)) {
    const size_t end = document.find('>', start);
    const std::string tag(
        document.substr(start, end == std::string_view::npos ? end : end + 1 - start));
    std::smatch parts;
    if (!std::regex_match(tag, parts, kTag)) return ::testing::AssertionFailure() << tag;
    if (parts[1].length() > 0) {
      if (open.empty() || open.back() != parts[2]) return ::testing::AssertionFailure() << tag;
      open.pop_back();
    } else {
      if (open.empty()) ++roots;
      if (parts[3].length() == 0) open.push_back(parts[2]);
    }
    start = end;
  }
  if (!open.empty()) return ::testing::AssertionFailure() << "no end of " << open.back();
  if (roots != 1) return ::testing::AssertionFailure() << roots << " roots";
  return ::testing::AssertionSuccess();
}

}  // namespace kvcast::testing
