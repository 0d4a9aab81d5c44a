// The copy kernels, compiled for several GPUs, as bytes that the driver loads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcast::cuda {

// The compiled copy_kernels.cu.
extern const unsigned char kCopyKernels[];

// Moves pieces through a ring of `stages` buffers of `stage_bytes` in shared memory, by bulk copies
// (sm_90 and later). Both addresses and the size of every piece must be multiples of 16. The size
// must be at most stage_bytes. A thread block has one warp.
//   (const uint64_t* src, const uint64_t* dst, const uint32_t* bytes, uint32_t count,
//    uint32_t stage_bytes, uint32_t stages)
inline constexpr const char* kRingKernel = "kvcast_copy_ring";
inline constexpr unsigned kRingThreads = 32;
inline constexpr uint32_t kRingStages = 64;    // at most
inline constexpr uint32_t kRingMinStages = 8;  // at least
// The maximum of stages * stage_bytes.
inline constexpr size_t kRingBytes = size_t{192} << 10;

// Moves pieces through registers, one warp per piece. Any addresses and sizes are allowed.
//   (const uint64_t* src, const uint64_t* dst, const uint32_t* bytes, uint32_t count)
inline constexpr const char* kWarpKernel = "kvcast_copy_warps";
inline constexpr unsigned kWarpThreads = 512;

}  // namespace kvcast::cuda
