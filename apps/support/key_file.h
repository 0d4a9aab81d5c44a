// WriteKeyFile: writes a key to a new file. The file has its final mode before the key is written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Creates the file with `mode`, and writes `text` and a newline. `replace`: an existing file is
// removed first. Errors (the message names the file): kFailedPrecondition: the file exists and
// `replace` is false. kUnavailable: the file cannot be written.
Status WriteKeyFile(const std::string& path, const std::string& text, mode_t mode, bool replace);

}  // namespace kvcast::tools
