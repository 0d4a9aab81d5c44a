// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace kvcast::bench {

ProcessMemory ReadProcessMemory(bool trim) {
  if (trim) malloc_trim(0);
  ProcessMemory memory;
  const struct mallinfo2 info = mallinfo2();
  memory.allocated = static_cast<int64_t>(info.uordblks + info.hblkhd);
  int64_t size = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  memory.resident = resident * sysconf(_SC_PAGESIZE);
  return memory;
}

}  // namespace kvcast::bench
