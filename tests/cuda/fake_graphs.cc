// Graphs of the fake driver. They hold only copies.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda/fake_driver_calls.h"

namespace kvcast::cuda::testing {
namespace {

FakeDriver::Graph& GraphOf(void* graph) { return *static_cast<FakeDriver::Graph*>(graph); }

}  // namespace

// A graph and an executable graph are lists of nodes. The handle of a node is its position, counted
// from 1.
void FillGraphs(DriverApi& api) {
  api.GraphCreate = [](CUgraph* graph, unsigned) -> CUresult {
    ENTER("cuGraphCreate");
    ++FakeDriver::Get().live_graphs;
    *graph = reinterpret_cast<CUgraph>(new FakeDriver::Graph);
    return CUDA_SUCCESS;
  };
  api.GraphAddMemcpyNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                              const CUDA_MEMCPY3D* copy, CUcontext context) -> CUresult {
    ENTER("cuGraphAddMemcpyNode");
    FakeDriver::Graph& nodes = GraphOf(graph);
    nodes.emplace_back();
    *node = reinterpret_cast<CUgraphNode>(nodes.size());
    return FakeDriver::Get().SetNode(*copy, context, nodes.back());
  };
  api.GraphInstantiateWithFlags = [](CUgraphExec* made, CUgraph graph,
                                     unsigned long long) -> CUresult {
    ENTER("cuGraphInstantiateWithFlags");
    ++FakeDriver::Get().live_graphs;
    *made = reinterpret_cast<CUgraphExec>(new FakeDriver::Graph(GraphOf(graph)));
    return CUDA_SUCCESS;
  };
  api.GraphExecMemcpyNodeSetParams = [](CUgraphExec made, CUgraphNode node,
                                        const CUDA_MEMCPY3D* copy, CUcontext context) -> CUresult {
    ENTER("cuGraphExecMemcpyNodeSetParams");
    FakeDriver::Graph& nodes = GraphOf(made);
    const auto place = reinterpret_cast<uintptr_t>(node);
    if (place == 0 || place > nodes.size()) return CUDA_ERROR_INVALID_VALUE;
    return FakeDriver::Get().SetNode(*copy, context, nodes[place - 1]);
  };
  api.GraphLaunch = [](CUgraphExec made, CUstream stream) -> CUresult {
    ENTER("cuGraphLaunch");
    return FakeDriver::Get().LaunchGraph(GraphOf(made), stream);
  };
  api.GraphDestroy = [](CUgraph graph) -> CUresult {
    ENTER("cuGraphDestroy");
    --FakeDriver::Get().live_graphs;
    delete &GraphOf(graph);
    return CUDA_SUCCESS;
  };
  api.GraphExecDestroy = [](CUgraphExec made) -> CUresult {
    ENTER("cuGraphExecDestroy");
    --FakeDriver::Get().live_graphs;
    delete &GraphOf(made);
    return CUDA_SUCCESS;
  };
}

CUresult FakeDriver::SetNode(const CUDA_MEMCPY3D& copy, CUcontext context, Node& node) {
  const auto place = [](CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(host) : device;
  };
  const auto is_of = [&](CUmemorytype type, uintptr_t address) {
    const bool gpu = allocations.upper_bound(address) != allocations.begin() &&
                     address < std::prev(allocations.upper_bound(address))->first +
                                   std::prev(allocations.upper_bound(address))->second.size();
    return type == (gpu ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
  };
  node = {place(copy.dstMemoryType, copy.dstHost, copy.dstDevice),
          place(copy.srcMemoryType, copy.srcHost, copy.srcDevice), copy.WidthInBytes};
  const bool flat = copy.Height == 1 && copy.Depth == 1 && copy.WidthInBytes > 0;
  const bool valid = IsCopyable(node.dst, node.bytes) && IsCopyable(node.src, node.bytes) &&
                     is_of(copy.dstMemoryType, node.dst) && is_of(copy.srcMemoryType, node.src);
  return flat && valid && context == kContext ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Runs the copies that the nodes have at the launch.
CUresult FakeDriver::LaunchGraph(const Graph& graph, CUstream stream) {
  size_t total = 0;
  for (const Node& node : graph) total += node.bytes;
  const auto copy = [graph, total]() -> size_t {
    for (const Node& node : graph) {
      std::memcpy(reinterpret_cast<void*>(node.dst), reinterpret_cast<void*>(node.src), node.bytes);
    }
    return total;
  };
  return EnqueueCopies({"cuGraphLaunch", graph.size(), 0, 0}, copy, 0,
                       static_cast<double>(total) / costs.link, stream);
}

}  // namespace kvcast::cuda::testing
