// Error reporting of the commands.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Prints "kvcast: <text>" as one line on stderr. Returns `exit_code`.
int Fail(const std::string& text, int exit_code = 1);
// Calls Fail with a Status. Exit code: 2 (usage error) for an invalid argument, otherwise 1.
int Fail(const Status& status);

}  // namespace kvcast::tools
