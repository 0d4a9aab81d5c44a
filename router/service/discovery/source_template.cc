// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/source_template.h"

#include <string_view>

namespace kvcast::router {
namespace {

void ReplaceAll(std::string& text, std::string_view from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string FillIn(std::string text, const SourceTarget& target, bool in_endpoint) {
  const bool brackets = in_endpoint && target.host.find(':') != std::string::npos;
  ReplaceAll(text, "{host}", brackets ? "[" + target.host + "]" : target.host);
  ReplaceAll(text, "{port}", std::to_string(target.port));
  return text;
}

}  // namespace kvcast::router
