// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/developer_program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "apps/dev/developer_commands.h"
#include "apps/support/fail.h"

namespace kvcast::tools {

bool IsDeveloperCommand(std::string_view name) {
  return std::ranges::any_of(
      kDeveloperCommands, [name](const DeveloperCommand& command) { return name == command.name; });
}

int RunDeveloperProgram(char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "kvcast-dev").string();
  if (!error) {
    execv(program.c_str(), argv);
    error = std::error_code(errno, std::generic_category());
  }
  return Fail(
      "cannot run " + program + ": " + error.message() + " (scripts/build release builds it)", 1);
}

}  // namespace kvcast::tools
