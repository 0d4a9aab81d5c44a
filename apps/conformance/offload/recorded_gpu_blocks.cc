// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/recorded_gpu_blocks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvcast::tools {

std::span<const BlockId> RecordedGpuBlocks::BlockTable(const CacheRequest& request,
                                                       GroupIdx group) const {
  const auto found = tables_.find(request.id);
  if (found == tables_.end()) return {};
  return found->second.at(group.value);
}

std::optional<BlockContent> RecordedGpuBlocks::ContentOf(BlockId block) const {
  const auto found = contents_.find(block);
  misused_ = misused_ || found == contents_.end();
  return found == contents_.end() ? std::nullopt : found->second;
}

std::optional<BlockId> RecordedGpuBlocks::NextFree(std::optional<BlockId> after) const {
  size_t next = 0;
  if (after != cursor_) {
    const auto found = std::find(free_queue_.begin(), free_queue_.end(), after.value_or(BlockId()));
    misused_ = misused_ || found == free_queue_.end();
    if (found == free_queue_.end()) return std::nullopt;
    next = static_cast<size_t>(found - free_queue_.begin()) + 1;
  }
  if (next == free_queue_.size()) return std::nullopt;
  return free_queue_[next];
}

bool RecordedGpuBlocks::IsFree(BlockId block) const { return cursor_ == block; }

void RecordedGpuBlocks::Pin(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) ++pins_[block];
}

void RecordedGpuBlocks::Unpin(std::span<const BlockId> blocks, bool /*take_next*/) {
  for (const BlockId block : blocks) misused_ = --pins_[block] < 0 || misused_;
}

void RecordedGpuBlocks::SetTable(const std::string& request, const nlohmann::json& blocks,
                                 bool append) {
  auto& table = tables_[request];
  table.resize(num_groups_);
  for (size_t i = 0; i < num_groups_; ++i) {
    if (!append) table[i].clear();
    for (const uint32_t id : blocks.at(i)) table[i].emplace_back(id);
  }
}

void RecordedGpuBlocks::ClearScan() {
  contents_.clear();
  cursor_.reset();
  free_queue_.clear();
}

void RecordedGpuBlocks::SetContent(BlockId block, const std::optional<BlockContent>& content) {
  contents_[block] = content;
}

void RecordedGpuBlocks::SetFreeQueue(std::optional<BlockId> cursor, std::vector<BlockId> blocks) {
  cursor_ = cursor;
  free_queue_ = std::move(blocks);
}

int64_t RecordedGpuBlocks::pins() const {
  int64_t sum = 0;
  for (const auto& [block, count] : pins_) sum += count;
  return sum;
}

}  // namespace kvcast::tools
