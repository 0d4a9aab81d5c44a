// Reads and writes whole files for tools. The first bytes of a file determine its format: plain,
// gzip or zstd.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Returns the file's decompressed content. Errors name the path. Causes: the file is not found, is
// unreadable, is damaged, or is larger than `max_bytes` after decompression.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{2} << 30);

// Returns the decompressed content of a file whose bytes are `bytes`. Errors name `path`.
Result<std::string> UnpackFile(std::string bytes, const std::string& path, size_t max_bytes);

// Writes `text` to the file, uncompressed. Replaces the old content. Errors name the path.
Status WriteFile(const std::string& path, std::string_view text);

// Returns the lines of `text` without their line ends, as views into `text`. A line end at
// the end of `text` starts no further line.
std::vector<std::string_view> SplitLines(std::string_view text);

// Returns the path of a file that ships with kvcast ("traces/..."). Searches in this order:
// $KVCAST_DATA_DIR, ../share/kvcast relative to the program's folder, and the folder `examples` of
// the source tree from which the program was built.
Result<std::string> FindDataFile(const std::string& name);

}  // namespace kvcast::tools
