// What the fake driver's functions have in common; for its own sources.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda::testing {

inline const CUcontext kContext = reinterpret_cast<CUcontext>(uintptr_t{0xC0});

// Those that are only measured.
void FillHostMemory(DriverApi& api);
void FillMappings(DriverApi& api);
void FillGraphs(DriverApi& api);

}  // namespace kvcast::cuda::testing

// How a function begins that works on the GPU.
#define ENTER(name)                                                                    \
  const std::lock_guard lock(FakeDriver::Get().calls);                                 \
  if (const CUresult entered = FakeDriver::Get().Enter(name); entered != CUDA_SUCCESS) \
  return entered
