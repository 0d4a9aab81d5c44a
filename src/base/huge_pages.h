// HugePageAllocator: the allocator of tables with millions of entries that are read at random. With
// small pages, the page table walk is most of the cost of a cache miss in such tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace kvcast {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Requests huge pages for the memory from the kernel. Must be called before the memory is first
// touched. If huge pages are switched off, or no huge page is free, the pages are small.
void AdviseHugePages(void* memory, size_t bytes);

template <typename T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t n) {
    if (!IsLarge(n)) return std::allocator<T>().allocate(n);
    const size_t bytes = (n * sizeof(T) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    void* const memory = std::aligned_alloc(kHugePageBytes, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    AdviseHugePages(memory, bytes);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t n) {
    if (!IsLarge(n)) return std::allocator<T>().deallocate(memory, n);
    std::free(memory);
  }

  friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }

 private:
  // A smaller array could waste most of a huge page.
  static bool IsLarge(size_t n) { return n > kHugePageBytes / sizeof(T); }
};

}  // namespace kvcast
