// Returns the root directory of the repository, for tests that read its files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace kvcast {

std::filesystem::path SourceDir();

}  // namespace kvcast
