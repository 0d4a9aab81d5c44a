// Pinned pools whose NUMA node the caller cannot choose: tables, probes, and the pools of programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/cuda/cuda_memory.h"

namespace kvcast::cuda {

// Creates a PinnedPool on the NUMA node next to the GPU. If this node cannot provide the memory,
// the kernel chooses another node. Errors: see PinnedPool::Create.
Result<PinnedPool> MakeInternalPool(const CudaDevice& device, PinnedPoolConfig config);

}  // namespace kvcast::cuda
