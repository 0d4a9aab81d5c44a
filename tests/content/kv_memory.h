// KvMemory: the bytes of a simulated GPU pool that all groups share, and the expected content of
// its blocks.
//
// A block of attention has one cell per token. A block of Mamba has four cells of one state. A code
// determines the words of a cell. The code depends on the group, on the prefix and, for a state, on
// the number of the cell. Cells with different meanings therefore hold different bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/spec/cache_spec.h"
#include "kvcast/transfer/block_layout.h"

namespace kvcast::content {

// `prefix` is the code of the tokens up to and including the token of this cell. For a state,
// `prefix` is the code of the tokens up to the position of the state.
uint64_t CellCode(size_t group, uint64_t prefix, int64_t cell_of_state);
void WriteCell(std::span<std::byte> cell, uint64_t code);
bool CellHolds(std::span<const std::byte> cell, uint64_t code);

class KvMemory {
 public:
  // Arguments as in RunConfig.
  KvMemory(const std::vector<GroupSpec>& groups, const std::vector<uint32_t>& cell_bytes,
           int64_t num_blocks);

  // K and V are separate, with two layers each. Every group uses the beginning of each row.
  GroupLayout LayoutOf(size_t group) const;
  // Covers all bytes of every block, independent of the group.
  GroupLayout WholeBlocks() const { return Layout(row_bytes_); }

  bool is_state(size_t group) const { return groups_[group].is_state; }
  int64_t cells(size_t group) const { return groups_[group].cells; }
  size_t cell_bytes(size_t group) const { return groups_[group].cell_bytes; }
  // Offset of a cell in the bytes of its block. CellOffset uses the layout of LayoutOf.
  // CellOffsetInWhole uses the layout of WholeBlocks.
  size_t CellOffset(size_t group, int64_t cell) const;
  size_t CellOffsetInWhole(size_t group, int64_t cell) const;

  // Fills all bytes of the block with garbage.
  void Poison(BlockId block);
  // Leaves a cell unchanged if it already holds the code: a recomputed token has the same KV.
  void Write(size_t group, BlockId block, int64_t cell, uint64_t code);
  bool Holds(size_t group, BlockId block, int64_t cell, uint64_t code) const;

 private:
  static constexpr size_t kParts = 2;
  static constexpr size_t kRows = 2;
  struct Group {
    bool is_state = false;
    int64_t cells = 0;
    size_t cell_bytes = 0;
    size_t row_bytes = 0;
  };

  GroupLayout Layout(size_t row_bytes) const;
  std::span<std::byte> Cell(size_t group, BlockId block, int64_t cell) const;

  std::vector<Group> groups_;
  size_t num_blocks_;
  size_t row_bytes_ = 0;  // bytes of a row, for the largest group
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace kvcast::content
