// The subcommands that check and measure kvcast itself are in the program kvcast-dev, in the same
// folder as kvcast. A build for production does not need kvcast-dev.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvcast::tools {

bool IsDeveloperCommand(std::string_view name);

// Replaces this process by kvcast-dev with the same arguments. Returns only if kvcast-dev cannot be
// run: prints the cause, and returns the exit code.
int RunDeveloperProgram(char** argv);

}  // namespace kvcast::tools
