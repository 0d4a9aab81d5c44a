// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/fresh_memory.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "apps/support/samples.h"
#include "src/base/huge_pages.h"

namespace kvcast::bench {
namespace {

constexpr size_t kHugePages = 9;
constexpr size_t kSmallPageBytes = 4096;

}  // namespace

double MeasureFreshHugePage() {
  // One page more, because the first address may be inside a huge page.
  constexpr size_t kBytes = (kHugePages + 1) * kHugePageBytes;
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  AdviseHugePages(memory, kBytes);
  auto* const bytes = static_cast<volatile char*>(memory);
  const size_t skipped =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(memory) % kHugePageBytes) % kHugePageBytes;
  Samples times;
  for (size_t page = 0; page < kHugePages; ++page) {
    const auto start = Clock::now();
    for (size_t at = 0; at < kHugePageBytes; at += kSmallPageBytes) {
      bytes[skipped + page * kHugePageBytes + at] = 1;
    }
    times.Add(NanosecondsSince(start));
  }
  munmap(memory, kBytes);
  return times.median();
}

}  // namespace kvcast::bench
