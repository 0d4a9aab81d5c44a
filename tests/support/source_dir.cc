// The only object file that contains the path of the repository. All other object files are the
// same in every checkout, so the compiler cache can serve them.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_dir.h"

namespace kvcast {

std::filesystem::path SourceDir() { return KVCAST_SOURCE_DIR; }

}  // namespace kvcast
