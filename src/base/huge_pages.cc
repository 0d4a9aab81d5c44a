// SPDX-License-Identifier: Apache-2.0
#include "src/base/huge_pages.h"

#include <sys/mman.h>

namespace kvcast {

void AdviseHugePages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace kvcast
