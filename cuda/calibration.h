// Calibrate: determines the costs of copies in one direction from a few timed copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_copy_backend.h"

namespace kvcast::cuda {

enum class ProbeKind : uint8_t {
  kEngine,        // one descriptor for each row
  kEngineRows,    // one descriptor for each copy
  kKernel,        // between host memory and the GPU
  kDeviceKernel,  // within the GPU
};

// `copies` copies of `rows` rows. Consecutive copies are adjacent in host memory, and apart on the
// GPU. With kDeviceKernel, a part of the GPU's memory takes the place of host memory. No address
// occurs twice.
struct Probe {
  ProbeKind kind = ProbeKind::kEngine;
  size_t copies = 1;
  uint32_t rows = 1;
  size_t row_bytes = 0;
  int blocks = 1;  // thread blocks of a kernel

  size_t bytes() const { return copies * rows * row_bytes; }
};
inline constexpr size_t kMaxProbeBytes = size_t{64} << 20;

// Returns the seconds from the first call until the bytes have arrived: the best of several tries.
using MeasureProbe = std::function<Result<double>(const Probe&)>;

struct CalibrationOptions {
  bool has_rows = true;  // the driver accepts one descriptor for several rows
  bool has_kernel = true;
  int kernel_blocks = 0;  // 0: Calibrate determines the number
};

// The result has `measured` = true. Not ok: a probe failed, or took no time.
Result<CudaCopyCosts> Calibrate(const CalibrationOptions& options, const MeasureProbe& measure);

}  // namespace kvcast::cuda
