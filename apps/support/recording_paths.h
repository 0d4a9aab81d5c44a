// Which files a conformance run reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// The recordings among `paths`: files as they are, and of folders, walked with those in them, the
// files that `is_recording` accepts, in the order of their names. kNotFound: a path that does not
// exist, or a folder that cannot be read or holds no `kind` ("wire file").
Result<std::vector<std::string>> RecordingPaths(const std::vector<std::string>& paths,
                                                bool (*is_recording)(const std::string& path),
                                                std::string_view kind);

// Whether a name ends with `extension`, as it is or compressed (".gz").
bool HasExtension(std::string_view path, std::string_view extension);

// The first line of a plain or gzip file, without its end; empty if it cannot be read.
std::string FirstLine(const std::string& path);

}  // namespace kvcast::tools
