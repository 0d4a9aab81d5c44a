// Counts what goes through operator new, for programs that link counting_new.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kvcast::wire {

// Bytes asked for since the program began, freed ones included. Single-threaded programs only.
size_t AllocatedBytes();

}  // namespace kvcast::wire
