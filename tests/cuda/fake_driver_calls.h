// Shared parts of the fake driver's functions, for its own sources.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda::testing {

inline const CUcontext kContext = reinterpret_cast<CUcontext>(uintptr_t{0xC0});

// Fill in driver functions that only measurements use.
void FillHostMemory(DriverApi& api);
void FillMappings(DriverApi& api);
void FillGraphs(DriverApi& api);

}  // namespace kvcast::cuda::testing

// Every function that works on the GPU begins with ENTER. ENTER takes the lock of the fake driver,
// and returns the error of FakeDriver::Enter.
#define ENTER(name)                                                                    \
  const std::lock_guard lock(FakeDriver::Get().calls);                                 \
  if (const CUresult entered = FakeDriver::Get().Enter(name); entered != CUDA_SUCCESS) \
  return entered
