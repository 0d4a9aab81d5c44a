// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/bench_arena.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace kvcast::cuda {
namespace {

constexpr int kPoison = 0xA5;

// Returns the word at byte `offset` of a source. No such word consists of kPoison bytes only.
uint64_t WordAt(size_t offset) { return (offset / 8 + 1) * 0x9E3779B97F4A7C15u; }

// Returns the positions 0..n-1 in random order. Runs of `run` positions stay together.
std::vector<uint32_t> Shuffled(size_t n, size_t run, uint64_t seed) {
  std::vector<uint32_t> firsts;
  for (size_t first = 0; first < n; first += run) firsts.push_back(static_cast<uint32_t>(first));
  std::mt19937_64 random(seed);
  std::shuffle(firsts.begin(), firsts.end(), random);
  std::vector<uint32_t> places;
  for (const uint32_t first : firsts) {
    for (size_t i = first; i < std::min(n, first + run); ++i) {
      places.push_back(static_cast<uint32_t>(i));
    }
  }
  return places;
}

}  // namespace

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

Result<std::unique_ptr<BenchArena>> BenchArena::Create(const CudaDevice& device, size_t bytes) {
  const size_t guarded_bytes = bytes + 2 * kGuardBytes;
  auto gpu = CudaMemory::Create(device, guarded_bytes);
  if (!gpu.ok()) return gpu.status();
  auto host = PinnedPool::Create(device, {.bytes = guarded_bytes});
  if (!host.ok()) return host.status();
  auto mirror = PinnedPool::Create(device, {.bytes = guarded_bytes});
  if (!mirror.ok()) return mirror.status();
  auto stream = MakeStream(device);
  if (!stream.ok()) return stream.status();
  auto tools = ToolKernels::Load(device);
  if (!tools.ok()) return tools.status();
  return std::unique_ptr<BenchArena>(new BenchArena(
      device, std::move(gpu).value(), std::move(host).value(), std::move(mirror).value(),
      std::move(stream).value(), std::move(tools).value()));
}

Status BenchArena::Synchronize() const {
  return device_->Check(device_->api().StreamSynchronize(stream()), "cuStreamSynchronize");
}

Status BenchArena::CopyNow(std::byte* dst, const std::byte* src, size_t bytes) {
  KVCAST_RETURN_IF_ERROR(device_->Check(
      device_->api().MemcpyAsync(reinterpret_cast<CUdeviceptr>(dst),
                                 reinterpret_cast<CUdeviceptr>(src), bytes, stream()),
      "cuMemcpyAsync"));
  return Synchronize();
}

Status BenchArena::CopyPlain(CopyDirection direction, size_t bytes) {
  return direction == CopyDirection::kLoad ? CopyNow(gpu(), host(), bytes)
                                           : CopyNow(host(), gpu(), bytes);
}

Status BenchArena::FillSource(CopyDirection direction) {
  source_.resize(host_.bytes());
  for (size_t at = 0; at + 8 <= source_.size(); at += 8) {
    const uint64_t word = WordAt(at);
    std::memcpy(&source_[at], &word, 8);
  }
  const bool load = direction == CopyDirection::kLoad;
  std::memcpy(load ? host_.base() : mirror_.base(), source_.data(), source_.size());
  return load ? Status() : CopyNow(gpu_.base(), mirror_.base(), gpu_.bytes());
}

Status BenchArena::PoisonTarget(CopyDirection direction) {
  const bool load = direction == CopyDirection::kLoad;
  std::memset(load ? mirror_.base() : host_.base(), kPoison, host_.bytes());
  return load ? CopyNow(gpu_.base(), mirror_.base(), gpu_.bytes()) : Status();
}

void BenchArena::ExpectCopies(CopyDirection direction, const std::vector<CopyOp>& ops) {
  const bool load = direction == CopyDirection::kLoad;
  const std::byte* const source_base = load ? host_.base() : gpu_.base();
  const std::byte* const target_base = load ? gpu_.base() : host_.base();
  target_.assign(host_.bytes(), std::byte{kPoison});
  for (const CopyOp& op : ops) {
    std::memcpy(&target_[static_cast<size_t>(op.dst - target_base)],
                &source_[static_cast<size_t>(op.src - source_base)], op.row_bytes);
  }
}

Status BenchArena::Verify(CopyDirection direction) {
  const bool load = direction == CopyDirection::kLoad;
  KVCAST_RETURN_IF_ERROR(CopyNow(mirror_.base(), gpu_.base(), gpu_.bytes()));
  const std::byte* const target = load ? mirror_.base() : host_.base();
  const std::byte* const source = load ? host_.base() : mirror_.base();
  if (std::memcmp(target, target_.data(), target_.size()) != 0) {
    const auto* const first = std::mismatch(target, target + target_.size(), target_.data()).first;
    return {StatusCode::kInternal, "byte " + std::to_string(first - target) + " is wrong"};
  }
  if (std::memcmp(source, source_.data(), source_.size()) != 0) {
    return {StatusCode::kInternal, "the source has changed"};
  }
  return {};
}

BenchWork MakeBenchWork(const BenchArena& arena, const CopyBenchShape& shape,
                        size_t payload_bytes) {
  BenchWork work{.shape = shape};
  const size_t block_bytes = shape.row_bytes * shape.rows;
  const size_t count = std::clamp<size_t>(payload_bytes / block_bytes, 1, shape.max_blocks);
  work.payload_bytes = count * block_bytes;
  const size_t places = count + 1;  // block 0 is the null block
  work.layout.num_blocks = static_cast<int64_t>(places);
  work.layout.parts.push_back({.base = arena.gpu(),
                               .block_stride = shape.row_bytes,
                               .row_bytes = shape.row_bytes,
                               .row_pitch = places * shape.row_bytes,
                               .rows = shape.rows});
  work.host = {arena.host(), arena.bytes(), block_bytes};
  const size_t run = shape.order == BlockOrder::kRandom       ? 1
                     : shape.order == BlockOrder::kRunsOfFour ? 4
                                                              : count;
  for (const uint32_t place : Shuffled(count, run, 1)) work.blocks.push_back(BlockId(place + 1));
  for (const uint32_t place : Shuffled(count, run, 2)) work.slots.push_back(SlotId(place));
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t row = 0; row < shape.rows; ++row) {
      std::byte* const gpu = arena.gpu() + (row * places + work.blocks[i].value) * shape.row_bytes;
      std::byte* const host =
          arena.host() + work.slots[i].value * block_bytes + row * shape.row_bytes;
      const bool load = shape.direction == CopyDirection::kLoad;
      work.fragments.push_back({load ? host : gpu, load ? gpu : host, shape.row_bytes, 0, 0, 1});
    }
  }
  return work;
}

}  // namespace kvcast::cuda
