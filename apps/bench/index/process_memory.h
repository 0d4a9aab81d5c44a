// Reads the memory of the process from the allocator and from the kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::bench {

struct ProcessMemory {
  // Bytes in use in the heaps and mappings of glibc's allocator (mallinfo2). Mappings of other code
  // are not included.
  int64_t allocated = 0;
  // Bytes of the resident pages (/proc/self/statm).
  int64_t resident = 0;
};

// If `trim` is true, the call first returns the allocator's free memory to the system.
ProcessMemory ReadProcessMemory(bool trim);

}  // namespace kvcast::bench
