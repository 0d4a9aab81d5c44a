// CopyGraph: copies as the nodes of a CUDA graph. Rebind binds the nodes to other addresses. Other
// projects use graphs in place of batches. The benchmark compares graphs with batches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cuda/handles.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::cuda {

class CopyGraph {
 public:
  // Creates one node per copy. The nodes do not depend on each other. REQUIRES: each copy has one
  // row. Not ok: kFailedPrecondition if the driver has no graphs of copies; otherwise the driver's
  // error.
  static Result<CopyGraph> Create(const CudaDevice& device, CopyDirection direction,
                                  std::span<const CopyOp> ops);

  // From the next launch on, the nodes execute these copies. Launches in flight do not change.
  // REQUIRES: `ops` has one copy per node. After an error, some nodes may be bound to the new
  // copies.
  Status Rebind(std::span<const CopyOp> ops);
  Status Launch(CUstream stream) const;

 private:
  CopyGraph(CudaDevice device, CopyDirection direction)
      : device_(std::move(device)), direction_(direction) {}

  CudaDevice device_;
  CopyDirection direction_;
  Unique<CUgraph, &DriverApi::GraphDestroy> graph_;
  Unique<CUgraphExec, &DriverApi::GraphExecDestroy> executable_;
  std::vector<CUgraphNode> nodes_;
};

}  // namespace kvcast::cuda
