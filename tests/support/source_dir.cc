// The one object that names the tree's place: all others are the same in every checkout, so that
// the compiler cache serves them.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_dir.h"

namespace kvcast {

std::filesystem::path SourceDir() { return KVCAST_SOURCE_DIR; }

}  // namespace kvcast
