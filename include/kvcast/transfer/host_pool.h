// HostPool: the memory of the host tier, present from the start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "kvcast/core/status.h"

namespace kvcast {

enum class HostPages {
  kSmall,
  kTransparentHuge,  // huge where the kernel finds them
  kHuge,             // from the reserved ones (vm.nr_hugepages); fewer than needed is an error
};

struct HostPoolConfig {
  size_t bytes = 0;
  HostPages pages = HostPages::kTransparentHuge;
  // Threads that touch the pages first. 0: half of the processors, 1 to 16.
  int threads = 0;
  // The NUMA node that the pages must come from, the GPU's best; none: the kernel chooses.
  std::optional<int> numa_node;
};

// Owns one anonymous mapping of exactly `bytes`, rounded up to whole pages; every page is there
// before Create returns, so no copy ever waits for one.
class HostPool {
 public:
  // Not ok: kInvalidArgument naming the field; kExhausted if the memory is not to be had, in which
  // case nothing is kept.
  static Result<HostPool> Create(const HostPoolConfig& config);
  ~HostPool();
  HostPool(HostPool&& other) noexcept;
  HostPool& operator=(HostPool&& other) noexcept;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }  // as asked for

 private:
  HostPool(std::byte* base, size_t bytes, size_t mapped)
      : base_(base), bytes_(bytes), mapped_(mapped) {}

  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ = 0;
};

}  // namespace kvcast
