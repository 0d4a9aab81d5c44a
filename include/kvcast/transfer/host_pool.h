// HostPool: the memory of the host tier. All pages are allocated and touched before first use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "kvcast/core/status.h"

namespace kvcast {

// Page size of a pool.
enum class HostPages {
  kSmall,
  kTransparentHuge,  // huge pages where the kernel can provide them
  // Reserved huge pages of 2 MiB (hugepages-2048kB/nr_hugepages in /sys/kernel/mm/hugepages).
  // Create returns an error if too few of these pages are reserved.
  kHuge,
};

struct HostPoolConfig {
  size_t bytes = 0;
  HostPages pages = HostPages::kTransparentHuge;
  // Number of threads that touch the pages at creation, 0 to 256. 0: half of the processors, but at
  // least 1 and at most 16. If the system refuses threads, fewer threads touch the pages.
  int threads = 0;
  // The NUMA node of all pages; the node next to the GPU is best. nullopt: the kernel chooses.
  std::optional<int> numa_node;
};

// Owns one anonymous mapping of `bytes`, rounded up to whole pages. Create returns after every page
// is present; no copy therefore waits for a page fault. Move-only. Thread-compatible.
class HostPool {
 public:
  // Errors: kInvalidArgument (the message names the field); kExhausted if the memory is not
  // available. On error no memory stays allocated.
  static Result<HostPool> Create(const HostPoolConfig& config);
  ~HostPool();
  HostPool(HostPool&& other) noexcept;
  HostPool& operator=(HostPool&& other) noexcept;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }  // as configured, not rounded

 private:
  HostPool(std::byte* base, size_t bytes, size_t mapped)
      : base_(base), bytes_(bytes), mapped_(mapped) {}

  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ = 0;
};

}  // namespace kvcast
