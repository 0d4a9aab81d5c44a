// SPDX-License-Identifier: Apache-2.0
#include "src/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kvcast::internal {

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace kvcast::internal
