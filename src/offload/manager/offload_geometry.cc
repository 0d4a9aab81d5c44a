// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/offload_geometry.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>

#include "src/offload/manager/slot_pool.h"

namespace kvcast::offload {
namespace {

// With larger values, sums of sizes could overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 60;

Status Invalid(const std::string& message) { return {StatusCode::kInvalidArgument, message}; }

Status CheckSizes(const OffloadConfig& config) {
  if (config.capacity_bytes < 0 || config.capacity_bytes > kMaxBytes) {
    return Invalid("capacity_bytes must be in 0..2^60");
  }
  if (config.page_bytes <= 0 || config.page_bytes > kMaxBytes ||
      !std::has_single_bit(static_cast<uint64_t>(config.page_bytes))) {
    return Invalid("page_bytes must be a power of 2, at most 2^60");
  }
  if (config.chunk_bytes.empty())
    return Invalid("chunk_bytes must have one entry per group, but is empty");
  for (const int64_t bytes : config.chunk_bytes) {
    if (bytes <= 0 || bytes > kMaxBytes) return Invalid("chunk_bytes must be in 1..2^60");
  }
  if (config.slot_bytes < 0 || config.slot_bytes > kMaxBytes ||
      config.slot_bytes % config.page_bytes != 0) {
    return Invalid("slot_bytes must be a multiple of page_bytes in 0..2^60");
  }
  return Status();
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a - 1) / b + 1; }

int64_t SlotBytes(const OffloadConfig& config) {
  if (config.slot_bytes > 0 && !config.compatible) return config.slot_bytes;
  int64_t divisor = 0;
  int64_t largest = 0;
  for (const int64_t bytes : config.chunk_bytes) {
    const int64_t pages = CeilDivide(bytes, config.page_bytes);
    divisor = std::gcd(divisor, pages);
    largest = std::max(largest, pages);
  }
  return (config.compatible ? largest : divisor) * config.page_bytes;
}

}  // namespace

Result<OffloadGeometry> OffloadGeometry::Create(const OffloadConfig& config) {
  if (Status status = CheckSizes(config); !status.ok()) return status;
  OffloadGeometry geometry;
  geometry.slot_bytes = SlotBytes(config);
  geometry.num_slots = config.capacity_bytes / geometry.slot_bytes;
  if (geometry.num_slots >= int64_t{kNoSlot}) {
    return Invalid("capacity_bytes / slot_bytes must be below 2^32 - 1: set a larger slot_bytes");
  }
  for (const int64_t bytes : config.chunk_bytes) {
    const int64_t slots = CeilDivide(bytes, geometry.slot_bytes);
    if (slots >= int64_t{kNoSlot}) {
      return Invalid("chunk_bytes / slot_bytes must be below 2^32 - 1: set a larger slot_bytes");
    }
    geometry.slots_per_chunk.push_back(static_cast<uint32_t>(slots));
  }
  return geometry;
}

}  // namespace kvcast::offload
