// SPDX-License-Identifier: Apache-2.0
#include "tests/content/kv_memory.h"

#include <algorithm>
#include <cstring>

namespace kvcast::content {

namespace {

constexpr int64_t kCellsOfAState = 4;
constexpr std::byte kGarbage{0xA5};

uint64_t Mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return x * 0x9E3779B97F4A7C15u;
}

}  // namespace

uint64_t CellCode(size_t group, uint64_t prefix, int64_t cell_of_state) {
  return Mix(prefix + 0x100000001B3u * (group + 1) + static_cast<uint64_t>(cell_of_state) * 977);
}

void WriteCell(std::span<std::byte> cell, uint64_t code) {
  for (size_t offset = 0; offset < cell.size(); offset += sizeof(code)) {
    const uint64_t word = Mix(code + offset);
    std::memcpy(&cell[offset], &word, sizeof(word));
  }
}

bool CellHolds(std::span<const std::byte> cell, uint64_t code) {
  for (size_t offset = 0; offset < cell.size(); offset += sizeof(code)) {
    const uint64_t word = Mix(code + offset);
    if (std::memcmp(&cell[offset], &word, sizeof(word)) != 0) return false;
  }
  return true;
}

KvMemory::KvMemory(const std::vector<GroupSpec>& groups, const std::vector<uint32_t>& cell_bytes,
                   int64_t num_blocks)
    : num_blocks_(static_cast<size_t>(num_blocks)) {
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group{.is_state = groups[g].kind == SpecKind::kMamba};
    group.cells = group.is_state ? kCellsOfAState : groups[g].block_size;
    group.cell_bytes = cell_bytes[g];
    group.row_bytes = static_cast<size_t>(group.cells) * group.cell_bytes / (kParts * kRows);
    row_bytes_ = std::max(row_bytes_, group.row_bytes);
    groups_.push_back(group);
  }
  memory_ = std::make_unique<std::byte[]>(num_blocks_ * row_bytes_ * kRows * kParts);
}

GroupLayout KvMemory::Layout(size_t row_bytes) const {
  GroupLayout layout;
  const size_t pitch = num_blocks_ * row_bytes_;
  for (size_t part = 0; part < kParts; ++part) {
    layout.parts.push_back({.base = memory_.get() + part * kRows * pitch,
                            .block_stride = row_bytes_,
                            .row_bytes = row_bytes,
                            .row_pitch = pitch,
                            .rows = kRows});
  }
  layout.num_blocks = static_cast<int64_t>(num_blocks_);
  return layout;
}

GroupLayout KvMemory::LayoutOf(size_t group) const { return Layout(groups_[group].row_bytes); }

size_t KvMemory::CellOffset(size_t group, int64_t cell) const {
  return static_cast<size_t>(cell) * groups_[group].cell_bytes;
}

size_t KvMemory::CellOffsetInWhole(size_t group, int64_t cell) const {
  const size_t offset = CellOffset(group, cell);
  const size_t row_bytes = groups_[group].row_bytes;
  return offset / row_bytes * row_bytes_ + offset % row_bytes;
}

std::span<std::byte> KvMemory::Cell(size_t group, BlockId block, int64_t cell) const {
  const size_t offset = CellOffsetInWhole(group, cell);
  const size_t row = offset / row_bytes_;
  const size_t pitch = num_blocks_ * row_bytes_;
  return {&memory_[row * pitch + block.value * row_bytes_ + offset % row_bytes_],
          groups_[group].cell_bytes};
}

void KvMemory::Poison(BlockId block) {
  for (size_t row = 0; row < kParts * kRows; ++row) {
    std::fill_n(&memory_[(row * num_blocks_ + block.value) * row_bytes_], row_bytes_, kGarbage);
  }
}

void KvMemory::Write(size_t group, BlockId block, int64_t cell, uint64_t code) {
  if (!Holds(group, block, cell, code)) WriteCell(Cell(group, block, cell), code);
}

bool KvMemory::Holds(size_t group, BlockId block, int64_t cell, uint64_t code) const {
  return CellHolds(Cell(group, block, cell), code);
}

}  // namespace kvcast::content
