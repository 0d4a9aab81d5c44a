// On a GPU, every copy path copies every byte, and leaves the guards around the pools unchanged.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "tests/cuda/gpu/gpu.h"

namespace kvcast::cuda {
namespace {

constexpr auto kLoad = CopyDirection::kLoad;
constexpr auto kStore = CopyDirection::kStore;

struct Case {
  CudaCopyPath path;
  size_t row_bytes;
  uint32_t rows;
  size_t shift;  // offset of every address, to break alignment
};

class GpuBytes : public testing::GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  // Rows are adjacent in host memory, and far apart on the GPU.
  std::vector<CopyOp> Ops(CopyDirection direction) const {
    const Case& c = GetParam();
    const size_t pitch = c.row_bytes + 96;
    const size_t cell = (pitch * c.rows + 64 + c.shift + 63) / 64 * 64;
    const size_t count = std::min<size_t>(kPool / cell, 3000);
    std::vector<size_t> cells(count);
    for (size_t i = 0; i < count; ++i) cells[i] = i;
    std::shuffle(cells.begin(), cells.end(), std::mt19937(9));
    std::vector<CopyOp> ops;
    for (size_t i = 0; i < count; ++i) {
      std::byte* const on_gpu = gpu(cells[i] * cell + c.shift);
      std::byte* const on_host = host(i * cell + c.shift * 3);
      if (direction == kLoad) {
        ops.push_back({on_host, on_gpu, c.row_bytes, c.row_bytes, pitch, c.rows});
      } else {
        ops.push_back({on_gpu, on_host, c.row_bytes, pitch, c.row_bytes, c.rows});
      }
    }
    return ops;
  }
};

TEST_P(GpuBytes, CopiesArriveAndNoOtherBytesChange) {
  CudaCopyConfig config;
  config.calibrate = false;
  config.load_path = config.store_path = GetParam().path;
  const auto backend = Backend(config);
  for (const auto direction : {kLoad, kStore}) {
    std::vector<std::byte> on_gpu(gpu_->bytes(), kPoison);
    std::vector<std::byte> on_host(host_->bytes(), kPoison);
    std::vector<std::byte>& source = direction == kLoad ? on_host : on_gpu;
    std::vector<std::byte>& target = direction == kLoad ? on_gpu : on_host;
    kvcast::testing::FillWith(source, GetParam().row_bytes);
    WriteGpu(on_gpu);
    WriteHost(on_host);
    const std::vector<CopyOp> ops = Ops(direction);
    const std::byte* const source_base = direction == kLoad ? host_->base() : gpu_->base();
    const std::byte* const target_base = direction == kLoad ? gpu_->base() : host_->base();
    for (const CopyOp& op : ops) {
      for (uint32_t row = 0; row < op.rows; ++row) {
        std::memcpy(&target[static_cast<size_t>(op.dst - target_base) + row * op.dst_pitch],
                    &source[static_cast<size_t>(op.src - source_base) + row * op.src_pitch],
                    op.row_bytes);
      }
    }
    const auto ticket = backend->Submit(direction, ops, nullptr);
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    ASSERT_EQ(backend->Wait(*ticket), CopyState::kDone) << backend->stats().poisoned;
    EXPECT_TRUE(ReadGpu() == on_gpu) << "direction " << static_cast<int>(direction);
    EXPECT_TRUE(ReadHost() == on_host) << "direction " << static_cast<int>(direction);
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto path :
       {CudaCopyPath::kCopyEngine, CudaCopyPath::kKernel, CudaCopyPath::kStaged}) {
    for (const size_t row_bytes : {16, 512, 1000, 4096, 16384, 16400, 37440, 1150000}) {
      cases.push_back({path, row_bytes, 1, 0});
    }
    cases.push_back({path, 4096, 16, 0});
    cases.push_back({path, 4097, 3, 0});
    for (const size_t shift : {1, 4, 8}) cases.push_back({path, 5000, 2, shift});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuBytes, ::testing::ValuesIn(Cases()), [](const auto& test) {
  std::string name(CudaCopyPathName(test.param.path));
  std::erase(name, '-');
  return name + "_" + std::to_string(test.param.row_bytes) + "x" + std::to_string(test.param.rows) +
         "_at_" + std::to_string(test.param.shift);
});

class GpuBackend : public testing::GpuTest {};

TEST_F(GpuBackend, MeasuresItsCosts) {
  const auto backend = Backend();
  for (const auto& lane : {backend->stats().loads, backend->stats().stores}) {
    EXPECT_EQ(lane.calibration_error, "");
    EXPECT_TRUE(lane.costs.measured);
    EXPECT_GT(lane.costs.link_rate, 1e9);
    EXPECT_GT(lane.costs.kernel_rate, 1e8);
    EXPECT_GE(lane.costs.kernel_blocks, 1);
  }
}

}  // namespace
}  // namespace kvcast::cuda
