// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/copy_graph.h"

#include <utility>

namespace kvcast::cuda {
namespace {

// The driver can bind nodes to other copies only while the copies have one dimension.
CUDA_MEMCPY3D Parameters(CopyDirection direction, const CopyOp& op) {
  CUDA_MEMCPY3D copy{};
  if (direction == CopyDirection::kLoad) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = op.src;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = reinterpret_cast<CUdeviceptr>(op.dst);
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(op.src);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = op.dst;
  }
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes = op.row_bytes;
  copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
  return copy;
}

bool HasGraphs(const DriverApi& api) {
  return api.GraphCreate != nullptr && api.GraphDestroy != nullptr &&
         api.GraphAddMemcpyNode != nullptr && api.GraphInstantiateWithFlags != nullptr &&
         api.GraphExecMemcpyNodeSetParams != nullptr && api.GraphExecDestroy != nullptr &&
         api.GraphLaunch != nullptr;
}

}  // namespace

Result<CopyGraph> CopyGraph::Create(const CudaDevice& device, CopyDirection direction,
                                    std::span<const CopyOp> ops) {
  const DriverApi& api = device->api();
  if (!HasGraphs(api))
    return Status(StatusCode::kFailedPrecondition,
                  "the CUDA driver does not support graphs of copies");
  CopyGraph copies(device, direction);
  CUgraph graph = nullptr;
  KVCAST_RETURN_IF_ERROR(device->Check(api.GraphCreate(&graph, 0), "cuGraphCreate"));
  copies.graph_ = {device, graph};
  for (const CopyOp& op : ops) {
    const CUDA_MEMCPY3D parameters = Parameters(direction, op);
    CUgraphNode node = nullptr;
    KVCAST_RETURN_IF_ERROR(device->Check(
        api.GraphAddMemcpyNode(&node, graph, nullptr, 0, &parameters, device->context()),
        "cuGraphAddMemcpyNode"));
    copies.nodes_.push_back(node);
  }
  CUgraphExec executable = nullptr;
  KVCAST_RETURN_IF_ERROR(device->Check(api.GraphInstantiateWithFlags(&executable, graph, 0),
                                       "cuGraphInstantiateWithFlags"));
  copies.executable_ = {device, executable};
  return copies;
}

Status CopyGraph::Rebind(std::span<const CopyOp> ops) {
  const DriverApi& api = device_->api();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const CUDA_MEMCPY3D parameters = Parameters(direction_, ops[i]);
    const CUresult result = api.GraphExecMemcpyNodeSetParams(executable_.get(), nodes_[i],
                                                             &parameters, device_->context());
    KVCAST_RETURN_IF_ERROR(device_->Check(result, "cuGraphExecMemcpyNodeSetParams"));
  }
  return {};
}

Status CopyGraph::Launch(CUstream stream) const {
  return device_->Check(device_->api().GraphLaunch(executable_.get(), stream), "cuGraphLaunch");
}

}  // namespace kvcast::cuda
