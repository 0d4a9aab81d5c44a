// Counts bytes that operator new allocates, for programs that link counting_new.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kvcast::wire {

// Returns the bytes requested since the start of the program, including freed bytes. Only for
// single-threaded programs.
size_t AllocatedBytes();

}  // namespace kvcast::wire
