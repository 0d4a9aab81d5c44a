// Finds the files that a conformance run reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Returns the paths of recordings. The path of an existing file is returned even if `is_recording`
// does not accept it. A folder is searched recursively, and replaced by the files that
// `is_recording` accepts, ordered by name. kNotFound: a path does not exist, or a folder cannot be
// read or contains no recording. `kind` ("wire file") names the recordings in the message.
Result<std::vector<std::string>> RecordingPaths(const std::vector<std::string>& paths,
                                                bool (*is_recording)(const std::string& path),
                                                std::string_view kind);

// Returns `paths` with each folder replaced by the files that `add_folder` appends for it. The
// first error of `add_folder` is returned.
Result<std::vector<std::string>> ExpandFolders(
    const std::vector<std::string>& paths,
    const std::function<Status(const std::string& folder, std::vector<std::string>& files)>&
        add_folder);

// True: the name ends with `extension`, or with `extension` and ".gz".
bool HasExtension(std::string_view path, std::string_view extension);

// The first line of a plain or gzip file, without its line end; empty if the file cannot be read.
std::string FirstLine(const std::string& path);

}  // namespace kvcast::tools
