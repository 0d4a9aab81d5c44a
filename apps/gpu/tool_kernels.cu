// The kernels that tool_kernels.h describes.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

namespace {

template <typename Word>
__device__ void CopyFragment(uint64_t src, uint64_t dst, uint32_t bytes, uint32_t thread,
                             uint32_t threads) {
  const Word* const from = reinterpret_cast<const Word*>(src);
  Word* const to = reinterpret_cast<Word*>(dst);
#pragma unroll 4
  for (uint32_t i = thread; i < bytes / sizeof(Word); i += threads) to[i] = __ldcs(from + i);
}

__device__ uint64_t Nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

}  // namespace

extern "C" __global__ void tool_copy_block_per_fragment(const uint64_t* src, const uint64_t* dst,
                                                        const uint32_t* bytes, uint32_t count) {
  for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
    CopyFragment<uint4>(src[i], dst[i], bytes[i], threadIdx.x, blockDim.x);
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    tool_copy_warp_per_fragment(const uint64_t* src, const uint64_t* dst, const uint32_t* bytes,
                                uint32_t count) {
  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < count; i += warps) {
    CopyFragment<uint2>(src[i], dst[i], bytes[i], threadIdx.x % 32, 32);
  }
}

// A block of 256 threads computes 32 x 32 elements of the result. Each thread computes four
// elements of one column.
extern "C" __global__ void __launch_bounds__(256)
    tool_gemm(float* c, const float* a, const float* b, uint32_t n) {
  constexpr uint32_t kTile = 32;
  constexpr uint32_t kRows = 4;
  __shared__ float tile_a[kTile][kTile + 1];
  __shared__ float tile_b[kTile][kTile + 1];
  const uint32_t x = threadIdx.x % kTile;
  const uint32_t y = threadIdx.x / kTile * kRows;
  const uint32_t row = blockIdx.x / (n / kTile) * kTile;
  const uint32_t column = blockIdx.x % (n / kTile) * kTile;
  float sum[kRows] = {};
  for (uint32_t k = 0; k < n; k += kTile) {
    for (uint32_t r = 0; r < kRows; ++r) {
      tile_a[y + r][x] = a[static_cast<uint64_t>(row + y + r) * n + k + x];
      tile_b[y + r][x] = b[static_cast<uint64_t>(k + y + r) * n + column + x];
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < kTile; ++i) {
      for (uint32_t r = 0; r < kRows; ++r) sum[r] += tile_a[y + r][i] * tile_b[i][x];
    }
    __syncthreads();
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    c[static_cast<uint64_t>(row + y + r) * n + column + x] = sum[r];
  }
}

extern "C" __global__ void tool_touch(uint64_t* memory, uint64_t words) {
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < words; i += threads) memory[i] += 1;
}

extern "C" __global__ void tool_stall(uint64_t nanoseconds) {
  const uint64_t begin = Nanoseconds();
  while (Nanoseconds() - begin < nanoseconds) {
  }
}

extern "C" __global__ void tool_fill(const uint64_t* places, const uint64_t* words,
                                     uint64_t bytes) {
  uint64_t* const block = reinterpret_cast<uint64_t*>(places[blockIdx.x]);
  const uint64_t word = words[blockIdx.x];
  for (uint64_t i = threadIdx.x; i < bytes / 8; i += blockDim.x) block[i] = word + 8 * i;
}

extern "C" __global__ void tool_check(const uint64_t* places, const uint64_t* words, uint64_t bytes,
                                      uint32_t* wrong) {
  const uint64_t* const block = reinterpret_cast<const uint64_t*>(places[blockIdx.x]);
  const uint64_t word = words[blockIdx.x];
  bool any = false;
  for (uint64_t i = threadIdx.x; i < bytes / 8; i += blockDim.x) any |= block[i] != word + 8 * i;
  if (any) wrong[blockIdx.x] = 1;
}
