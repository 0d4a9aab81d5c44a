// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/conversations.h"

namespace kvcast::bench {
namespace {

// The kind of a block is in the two highest bits of its number. Mix64 is a bijection, so different
// blocks have different hashes.
enum class BlockKind : uint64_t { kSystem, kProject, kTurn, kUnheld };

uint64_t BlockName(BlockKind kind, uint64_t number) {
  return Mix64(static_cast<uint64_t>(kind) << 62 | number);
}

}  // namespace

WorkerId Conversations::WorkerOf(uint64_t conversation) const {
  const uint64_t project = ProjectOf(conversation);
  uint64_t worker = project % workers_;
  if (PlaceOf(conversation) % kHolders == 1) {
    worker = (worker + 1 + Mix64(~project) % (workers_ - 1)) % workers_;
  }
  return WorkerId(static_cast<uint32_t>(worker));
}

uint64_t Conversations::HashOf(uint64_t conversation, uint64_t position) const {
  const uint64_t project = ProjectOf(conversation);
  if (position < kSystemBlocks) return SystemHash(SystemOf(project), position);
  if (position < kSharedBlocks) {
    return BlockName(BlockKind::kProject, project * kProjectBlocks + position - kSystemBlocks);
  }
  constexpr uint64_t kOwnBlocks = kPromptBlocks - kSharedBlocks;
  return BlockName(BlockKind::kTurn, conversation * kOwnBlocks + position - kSharedBlocks);
}

uint64_t Conversations::SystemHash(uint64_t system, uint64_t position) {
  return BlockName(BlockKind::kSystem, system * kSystemBlocks + position);
}

uint64_t Conversations::UnheldHash(uint64_t number) {
  return BlockName(BlockKind::kUnheld, number);
}

}  // namespace kvcast::bench
