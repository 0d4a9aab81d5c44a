// SPDX-License-Identifier: Apache-2.0
#include "tests/support/counting_new.h"

#include <cstdlib>
#include <new>

namespace {
size_t allocated_bytes = 0;
}  // namespace

void* operator new(size_t size) {
  allocated_bytes += size;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kvcast::wire {
size_t AllocatedBytes() { return allocated_bytes; }
}  // namespace kvcast::wire
