// CopyPlanner: turns moves of blocks into few, large copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/block_layout.h"
#include "kvcast/copy_backend.h"
#include "kvcast/ids.h"
#include "kvcast/status.h"

namespace kvcast::transfer {

// Bytes [offset, offset + bytes) of a GPU block, and where they are in host memory.
struct BlockMove {
  BlockId block;
  size_t offset = 0;
  size_t bytes = 0;
  size_t host_offset = 0;
};

// Copies, in batches that are to be submitted one by one.
struct CopyPlan {
  struct Batch {
    size_t first_op = 0;
    size_t num_ops = 0;
    size_t bytes = 0;
  };
  std::vector<CopyOp> ops;
  std::vector<Batch> batches;

  void Clear();
  std::span<const CopyOp> OpsOf(const Batch& batch) const {
    return std::span(ops).subspan(batch.first_op, batch.num_ops);
  }
};

struct BatchLimits {
  size_t bytes = size_t{4} << 20;
  size_t ops = 512;
};

// Adds copies to a plan. Neighbours on both sides become one copy; what exceeds a batch is cut.
class CopyPlanner {
 public:
  CopyPlanner(const HostLayout& host, const BatchLimits& limits) : host_(host), limits_(limits) {}

  // Sorts `moves` by destination. Not ok, and nothing added, kInvalidArgument: a move out of the
  // layout's bounds, or two that write the same bytes.
  Status Plan(CopyDirection direction, const GroupLayout& layout, std::vector<BlockMove>& moves,
              CopyPlan& plan) const;

 private:
  class Emitter;

  HostLayout host_;
  BatchLimits limits_;
};

}  // namespace kvcast::transfer
