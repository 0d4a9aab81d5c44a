// SPDX-License-Identifier: Apache-2.0
#include "src/base/version.h"

namespace kvcast {

std::string_view Version() { return KVCAST_VERSION_TEXT; }

std::string_view CompilerText() {
#if defined(__clang__)
  return __VERSION__;
#else
  return "GCC " __VERSION__;
#endif
}

}  // namespace kvcast
