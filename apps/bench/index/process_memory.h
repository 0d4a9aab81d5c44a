// The memory of the process, as the allocator and as the kernel count it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::bench {

struct ProcessMemory {
  // Bytes in use in glibc's heaps and in its mappings (mallinfo2). Mappings that other code made
  // are not included.
  int64_t allocated = 0;
  // Bytes of the resident pages (/proc/self/statm).
  int64_t resident = 0;
};

// `trim`: first returns the allocator's free memory to the system.
ProcessMemory ReadProcessMemory(bool trim);

}  // namespace kvcast::bench
