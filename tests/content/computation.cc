// SPDX-License-Identifier: Apache-2.0
#include "tests/content/computation.h"

#include <algorithm>

namespace kvcast::content {

BlockId Computation::BlockOf(const RequestWork& work, size_t group, int64_t token) const {
  const auto& table = work.tables[group];
  const auto index = static_cast<size_t>(token / groups_[group].block_size);
  return index < table.size() ? table[index] : BlockId(0);
}

void Computation::RecordWrong(const RequestWork& work, size_t group, int64_t token,
                              int64_t& count) {
  ++count;
  if (!findings_.first.empty()) return;
  findings_.first = std::string(&count == &findings_.before_use ? "before" : "after") +
                    " use: step " + std::to_string(counts_.steps) + " request " +
                    work.request_name + " computes " + std::to_string(work.computed) + ".." +
                    std::to_string(work.end) + ", group " + std::to_string(group) + " token " +
                    std::to_string(token) + " in block " +
                    std::to_string(BlockOf(work, group, token).value);
}

bool Computation::HoldsState(const RequestWork& work, size_t group, int64_t boundary) {
  const BlockId block = BlockOf(work, group, boundary - 1);
  const uint64_t prefix = work.prefix[static_cast<size_t>(boundary - 1)];
  ++counts_.checked_blocks;
  for (int64_t cell = 0; cell < memory_.cells(group); ++cell) {
    if (!memory_.Holds(group, block, cell, CellCode(group, prefix, cell))) return false;
  }
  return true;
}

void Computation::ReadState(const RequestWork& work, size_t group) {
  if (work.computed == 0 || HoldsState(work, group, work.computed)) return;
  RecordWrong(work, group, work.computed - 1, findings_.before_use);
}

// Writes the state of every block that the step completes or ends in. The null block gets no state.
void Computation::WriteStates(const RequestWork& work, size_t group) {
  const int64_t size = groups_[group].block_size;
  for (int64_t begin = work.computed / size * size; begin < work.end; begin += size) {
    const int64_t boundary = std::min(begin + size, work.end);
    const BlockId block = BlockOf(work, group, boundary - 1);
    if (block.value == 0) continue;
    const uint64_t prefix = work.prefix[static_cast<size_t>(boundary - 1)];
    for (int64_t cell = 0; cell < memory_.cells(group); ++cell) {
      memory_.Write(group, block, cell, CellCode(group, prefix, cell));
    }
  }
}

void Computation::CheckWrittenStates(const RequestWork& work, size_t group) {
  const int64_t size = groups_[group].block_size;
  for (int64_t begin = work.computed / size * size; begin < work.end; begin += size) {
    const int64_t boundary = std::min(begin + size, work.end);
    if (BlockOf(work, group, boundary - 1).value == 0) continue;
    if (!HoldsState(work, group, boundary))
      RecordWrong(work, group, boundary - 1, findings_.after_use);
  }
}

void Computation::WriteTokens(const RequestWork& work, size_t group) {
  const int64_t size = groups_[group].block_size;
  for (int64_t token = work.computed; token < work.end; ++token) {
    const BlockId block = BlockOf(work, group, token);
    if (block.value == 0) continue;
    const uint64_t prefix = work.prefix[static_cast<size_t>(token)];
    memory_.Write(group, block, token % size, CellCode(group, prefix, 0));
  }
}

void Computation::ReadTokens(const RequestWork& work, size_t group, int64_t end, int64_t& wrong) {
  const int64_t size = groups_[group].block_size;
  const int64_t begin = SkippedTokens(groups_[group], work.computed);
  counts_.checked_blocks += CeilDiv(end, size) - begin / size;
  for (int64_t token = begin; token < end; ++token) {
    const BlockId block = BlockOf(work, group, token);
    const uint64_t code = CellCode(group, work.prefix[static_cast<size_t>(token)], 0);
    if (!memory_.Holds(group, block, token % size, code)) RecordWrong(work, group, token, wrong);
  }
}

void Computation::Begin(const std::vector<RequestWork>& step) {
  for (const RequestWork& work : step) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (memory_.is_state(g)) ReadState(work, g);
    }
  }
  for (const RequestWork& work : step) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      memory_.is_state(g) ? WriteStates(work, g) : WriteTokens(work, g);
    }
  }
  for (const RequestWork& work : step) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!memory_.is_state(g)) ReadTokens(work, g, work.computed, findings_.before_use);
    }
  }
}

void Computation::End(const std::vector<RequestWork>& step) {
  for (const RequestWork& work : step) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (memory_.is_state(g)) {
        CheckWrittenStates(work, g);
      } else {
        ReadTokens(work, g, work.end, findings_.after_use);
      }
    }
  }
}

}  // namespace kvcast::content
