// The release of this program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvcast {

// For example "0.1.0".
std::string_view Version();
// The compiler that built the program, with its version.
std::string_view CompilerText();

}  // namespace kvcast
