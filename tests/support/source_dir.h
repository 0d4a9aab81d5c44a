// The path of the sources, for tests that read files of the tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace kvcast {

std::filesystem::path SourceDir();

}  // namespace kvcast
