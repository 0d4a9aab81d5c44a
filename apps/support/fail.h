// How a command reports an error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Prints "kvcast: <text>" as one line on stderr; gives back `exit_code`.
int Fail(const std::string& text, int exit_code = 1);
// Fail with a Status: invalid arguments are usage errors (2), everything else failures (1).
int Fail(const Status& status);

}  // namespace kvcast::tools
