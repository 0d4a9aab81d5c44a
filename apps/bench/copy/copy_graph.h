// CopyGraph: copies as the nodes of a graph of the driver, which are bound to other places before
// each launch. What others do instead of batches; to be measured beside them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "cuda/handles.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::cuda {

class CopyGraph {
 public:
  // One node for each of the copies, of one row, none of which waits for another. Not ok:
  // kFailedPrecondition, "not offered here", if the driver has no graphs; else its error.
  static Result<CopyGraph> Create(const CudaDevice& device, CopyDirection direction,
                                  std::span<const CopyOp> ops);

  // From the next launch on the nodes do these copies; launches under way stay what they are.
  // REQUIRES: as many copies as there are nodes. Not ok: some nodes may be bound already.
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
