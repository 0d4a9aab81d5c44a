// What the process holds, as the allocator and as the kernel count it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::bench {

struct ProcessMemory {
  // In use in glibc's heaps and in mappings of its own (mallinfo2); what others map themselves is
  // not in it.
  int64_t allocated = 0;
  // Pages that the process has touched and not given back (/proc/self/statm).
  int64_t resident = 0;
};

// `trim`: the allocator gives back first what it keeps for later.
ProcessMemory ReadProcessMemory(bool trim);

}  // namespace kvcast::bench
