// ProbeRunner: measures the time of copies between its own GPU memory and its own host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cuda/calibration.h"
#include "cuda/copy_engine.h"
#include "cuda/handles.h"
#include "cuda/kernel_copier.h"
#include "kvcast/cuda/cuda_memory.h"

namespace kvcast::cuda {

class ProbeRunner {
 public:
  // `kernels` must outlive the runner. Not ok: GPU memory or host memory has no room
  // for kMaxProbeBytes, or a driver call failed.
  static Result<std::unique_ptr<ProbeRunner>> Create(const CudaDevice& device,
                                                     const CopyKernels& kernels);

  // Returns seconds. MeasureProbe describes the result.
  Result<double> Measure(CopyDirection direction, const Probe& probe);

 private:
  ProbeRunner(const CudaDevice& device, CudaMemory gpu, PinnedPool host, Stream stream, Event begin,
              Event end, KernelCopier kernel)
      : device_(device),
        gpu_(std::move(gpu)),
        host_(std::move(host)),
        stream_(std::move(stream)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        kernel_(std::move(kernel)),
        engine_(device, nullptr) {}

  void Plan(CopyDirection direction, const Probe& probe);
  Status Start(CopyDirection direction, const Probe& probe);
  Result<double> TimeOnce(CopyDirection direction, const Probe& probe);

  const CudaDevice device_;
  const CudaMemory gpu_;
  const PinnedPool host_;
  const Stream stream_;
  const Event begin_;
  const Event end_;
  KernelCopier kernel_;
  const CopyEngine engine_;
  CopyDescriptors descriptors_;
  std::vector<CopyOp> ops_;
  Pieces aligned_;
  Pieces unaligned_;
};

}  // namespace kvcast::cuda
