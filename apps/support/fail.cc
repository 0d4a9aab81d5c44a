// SPDX-License-Identifier: Apache-2.0
#include "apps/support/fail.h"

#include <cstdio>

namespace kvcast::tools {

int Fail(const std::string& text, int exit_code) {
  std::fprintf(stderr, "kvcast: %s\n", text.c_str());
  return exit_code;
}

int Fail(const Status& status) {
  return Fail(status.message(), status.code() == StatusCode::kInvalidArgument ? 2 : 1);
}

}  // namespace kvcast::tools
