// ReadSecretFile: reads a file that holds a secret, such as a token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kvcast/core/status.h"

namespace kvcast {

// The content of a regular file of at most 64 KiB that only its owner can access. Error:
// kInvalidArgument; the message is one line without the path.
Result<std::string> ReadSecretFile(const std::string& path);

}  // namespace kvcast
