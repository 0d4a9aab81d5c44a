// SPDX-License-Identifier: Apache-2.0
#include "apps/gpu/tool_kernels.h"

#include <utility>

namespace kvcast::cuda {

Result<ToolKernels> ToolKernels::Load(const CudaDevice& device) {
  const DriverApi& api = device->api();
  CUmodule module = nullptr;
  KVCAST_RETURN_IF_ERROR(device->Check(api.ModuleLoadData(&module, kToolKernels),
                                       "cuModuleLoadData of the tools' kernels"));
  ToolKernels kernels{.module = Module(device, module)};
  const std::pair<CUfunction*, const char*> functions[] = {
      {&kernels.block_per_fragment, "tool_copy_block_per_fragment"},
      {&kernels.warp_per_fragment, "tool_copy_warp_per_fragment"},
      {&kernels.gemm, "tool_gemm"},
      {&kernels.touch, "tool_touch"},
      {&kernels.stall, "tool_stall"},
      {&kernels.fill, "tool_fill"},
      {&kernels.check, "tool_check"}};
  for (const auto& [function, name] : functions) {
    KVCAST_RETURN_IF_ERROR(
        device->Check(api.ModuleGetFunction(function, module, name), "cuModuleGetFunction"));
  }
  return kernels;
}

}  // namespace kvcast::cuda
