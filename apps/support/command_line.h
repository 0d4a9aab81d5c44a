// Runs the subcommand that a command line selects.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "apps/support/fail.h"

namespace kvcast::tools {

using Command = std::function<int()>;

// Parses the command line, and then calls `command`, which the callback of a subcommand has set.
// Returns the exit code. A usage error prints one line to stderr and returns 2.
inline int RunCommand(CLI::App& app, int argc, char** argv, const Command& command) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    return Fail(std::string(error.what()) + " (see kvcast --help)", 2);
  }
  return command();
}

}  // namespace kvcast::tools
