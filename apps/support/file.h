// Reads whole files for tools: plain, gzip or zstd. The first bytes of a file determine its format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// The file's decompressed content. Errors name the path: not found, unreadable, damaged, or larger
// than `max_bytes` once decompressed.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{2} << 30);

// Lines of `text` without their line ends; a last empty line is left out. Views into `text`.
std::vector<std::string_view> SplitLines(std::string_view text);

// Path of a file that ships with kvcast ("traces/..."): looked up in $KVCAST_DATA_DIR, then beside
// the installed program (../share/kvcast), then in the source tree this program was built from.
Result<std::string> FindDataFile(const std::string& name);

}  // namespace kvcast::tools
