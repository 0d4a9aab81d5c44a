// Reads files that other programs write.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "kvcast/core/status.h"

namespace kvcast::router {

// Returns the content of a regular file of at most `max_mib` MiB. kNotFound: the file cannot be
// read, is not a regular file, or is too large. The message does not have the path. Does not block
// on a pipe.
Result<std::string> ReadRegularFile(const std::string& path, size_t max_mib);

}  // namespace kvcast::router
