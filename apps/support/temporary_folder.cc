// SPDX-License-Identifier: Apache-2.0
#include "apps/support/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace kvcast::tools {

Result<TemporaryFolder> TemporaryFolder::Create(const std::string& prefix) {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  if (error) return Status(StatusCode::kUnavailable, "temporary files: " + error.message());
  std::string path = parent / (prefix + "XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return Status(StatusCode::kUnavailable, path + ": " + std::generic_category().message(errno));
  }
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace kvcast::tools
