// SPDX-License-Identifier: Apache-2.0
#include "src/http/trace_parent.h"

namespace kvcast {

std::string_view TraceParentOf(const HttpRequest& request) {
  constexpr std::string_view kForm = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
  const std::string_view value = request.Header("traceparent");
  if (value.size() != kForm.size()) return {};
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool hex = (value[i] >= '0' && value[i] <= '9') || (value[i] >= 'a' && value[i] <= 'f');
    if (kForm[i] == 'x' ? !hex : value[i] != '-') return {};
  }
  return value;
}

}  // namespace kvcast
