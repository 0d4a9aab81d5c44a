// The copy kernels. copy_kernels.h describes their arguments.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

namespace {

struct Entry {
  uint64_t src;
  uint64_t dst;
  uint32_t bytes;
};

// The table may be in host memory, so its entries are read well before they are needed.
__device__ Entry ReadEntry(const uint64_t* src, const uint64_t* dst, const uint32_t* bytes,
                           uint32_t i, uint32_t end) {
  return i < end ? Entry{src[i], dst[i], bytes[i]} : Entry{0, 0, 0};
}

#if __CUDA_ARCH__ >= 900

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr uint32_t kMaxStages = 64;
// Before each later load, a thread block waits until at most this number of its stores still read
// their stages. kManyStores applies from kManyStages stages on.
constexpr uint32_t kFewStores = 4;
constexpr uint32_t kManyStores = 16;
constexpr uint32_t kManyStages = 48;

__device__ Entry EntryOfLane(const Entry& mine, uint32_t lane) {
  return {__shfl_sync(kAllLanes, mine.src, lane), __shfl_sync(kAllLanes, mine.dst, lane),
          __shfl_sync(kAllLanes, mine.bytes, lane)};
}

__device__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void InitBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
}

__device__ void Load(void* stage, const Entry& entry, uint64_t* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(full)),
               "r"(entry.bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(stage)),
      "l"(entry.src), "r"(entry.bytes), "r"(SharedAddress(full))
      : "memory");
}

__device__ void WaitUntilFull(uint64_t* full, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(SharedAddress(full)), "r"(parity)
        : "memory");
  }
}

__device__ void Store(uint64_t dst, const void* stage, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst),
               "r"(SharedAddress(stage)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <uint32_t kStores>
__device__ void WaitUntilRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kStores) : "memory");
}

__device__ void WaitUntilWritten() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// The stages of a thread block. StartLoad starts the load of a piece into the next stage. StoreNext
// waits until the oldest load has ended, and starts the store of its piece. Only the first lane
// calls these functions. The other lanes only hold the next entries.
class Ring {
 public:
  __device__ Ring(unsigned char* stages, uint64_t* full, Entry* pieces, uint32_t stage_bytes,
                  uint32_t num_stages)
      : stages_(stages),
        full_(full),
        pieces_(pieces),
        stage_bytes_(stage_bytes),
        num_stages_(num_stages) {}

  __device__ void StartLoad(const Entry& entry) {
    pieces_[load_stage_] = entry;
    Load(stages_ + load_stage_ * stage_bytes_, entry, &full_[load_stage_]);
    if (++load_stage_ == num_stages_) load_stage_ = 0;
  }

  __device__ void StoreNext() {
    WaitUntilFull(&full_[store_stage_], parity_);
    const Entry& entry = pieces_[store_stage_];
    Store(entry.dst, stages_ + store_stage_ * stage_bytes_, entry.bytes);
    if (++store_stage_ == num_stages_) {
      store_stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  unsigned char* const stages_;
  uint64_t* const full_;
  Entry* const pieces_;
  const uint32_t stage_bytes_;
  const uint32_t num_stages_;
  uint32_t load_stage_ = 0;
  uint32_t store_stage_ = 0;
  uint32_t parity_ = 0;
};

#endif

// Returns the largest of 16, 8, 4 and 1 that divides both addresses and the size.
__device__ uint32_t WidthOf(const Entry& entry) {
  const uint64_t all = entry.src | entry.dst | entry.bytes;
  return all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
}

// Each lane has eight words in flight.
template <typename Word>
__device__ void CopyWords(const Entry& entry, uint32_t lane) {
  constexpr uint32_t kUnroll = 8;
  constexpr uint32_t kLanes = 32;
  const Word* const src = reinterpret_cast<const Word*>(entry.src);
  Word* const dst = reinterpret_cast<Word*>(entry.dst);
  const uint32_t words = entry.bytes / sizeof(Word);
  uint32_t index = lane;
  for (; index + (kUnroll - 1) * kLanes < words; index += kUnroll * kLanes) {
    Word values[kUnroll];
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) values[k] = __ldcs(src + index + k * kLanes);
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) __stcs(dst + index + k * kLanes, values[k]);
  }
  for (; index < words; index += kLanes) __stcs(dst + index, __ldcs(src + index));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32)
    kvcast_copy_ring(const uint64_t* src, const uint64_t* dst, const uint32_t* bytes,
                     uint32_t count, uint32_t stage_bytes, uint32_t stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char buffers[];
  __shared__ uint64_t full[kMaxStages];
  __shared__ Entry pieces[kMaxStages];
  const uint32_t lane = threadIdx.x;
  const auto share = [&](uint32_t block) {
    return static_cast<uint32_t>(static_cast<uint64_t>(count) * block / gridDim.x);
  };
  const uint32_t begin = share(blockIdx.x);
  const uint32_t end = share(blockIdx.x + 1);
  if (lane == 0) {
    for (uint32_t i = 0; i < stages; ++i) InitBarrier(&full[i]);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  Ring ring(buffers, full, pieces, stage_bytes, stages);
  const bool many = stages >= kManyStages;
  const uint32_t ahead = stages - (many ? kManyStores : kFewStores);
  Entry next = ReadEntry(src, dst, bytes, begin + lane, end);
  Entry mine = next;
  uint32_t loaded = begin;
  const auto load_next = [&] {
    const uint32_t place = (loaded - begin) % 32;
    if (place == 0) {
      mine = next;
      next = ReadEntry(src, dst, bytes, loaded + 32 + lane, end);
    }
    const Entry entry = EntryOfLane(mine, place);
    if (lane == 0) ring.StartLoad(entry);
    ++loaded;
  };
  while (loaded < end && loaded - begin < ahead) load_next();
  for (uint32_t i = begin; i < end; ++i) {
    if (lane == 0) {
      ring.StoreNext();
      if (many) {
        WaitUntilRead<kManyStores>();
      } else {
        WaitUntilRead<kFewStores>();
      }
    }
    if (loaded < end) load_next();
  }
  if (lane == 0) WaitUntilWritten();
#endif
}

extern "C" __global__ void __launch_bounds__(512)
    kvcast_copy_warps(const uint64_t* src, const uint64_t* dst, const uint32_t* bytes,
                      uint32_t count) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warps = gridDim.x * (blockDim.x / 32);
  // Neighbouring pieces go to different thread blocks, so that all blocks have work even if there
  // are few pieces.
  uint32_t i = threadIdx.x / 32 * gridDim.x + blockIdx.x;
  Entry next = ReadEntry(src, dst, bytes, i, count);
  for (; i < count; i += warps) {
    const Entry entry = next;
    next = ReadEntry(src, dst, bytes, i + warps, count);
    switch (WidthOf(entry)) {
      case 16:
        CopyWords<uint4>(entry, lane);
        break;
      case 8:
        CopyWords<uint2>(entry, lane);
        break;
      case 4:
        CopyWords<uint32_t>(entry, lane);
        break;
      default:
        CopyWords<uint8_t>(entry, lane);
        break;
    }
  }
}
