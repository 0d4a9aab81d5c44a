// Stubs of copy_bench.h, so that a build without a CUDA toolkit links. They are never called,
// because such a build opens no CUDA device.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/copy_bench.h"

namespace kvcast::cuda {
namespace {

Status NoCuda() { return {StatusCode::kUnavailable, "this build has no CUDA"}; }

}  // namespace

std::vector<CopyBenchShape> DefaultCopyBenchShapes() { return {}; }
const CopyBenchMethod& CopyBenchCell::best_rival() const { return methods.front(); }
double CopyBenchTarget(const CopyBenchShape&, size_t) { return 0; }
Status RunCudaCopyBench(const CudaDevice&, const CopyBenchConfig&,
                        const std::function<void(const CopyBenchCell&)>&) {
  return NoCuda();
}
Result<std::vector<BothWaysResult>> RunBothWays(const CudaDevice&, size_t, int) { return NoCuda(); }
Result<std::vector<SlowdownResult>> RunSlowdown(const CudaDevice&, int) { return NoCuda(); }
Status RunCudaQuestions(const CudaDevice&, size_t, const std::function<void(std::string)>&) {
  return NoCuda();
}

}  // namespace kvcast::cuda
