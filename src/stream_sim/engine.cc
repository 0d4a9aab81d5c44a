// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/engine.h"

#include <utility>

namespace kvcast::sim {
namespace {

constexpr size_t kPoolCopies = 48;
constexpr int64_t kSharedHashes = 64;
constexpr int64_t kBlockSize = 16;
constexpr int64_t kWindow = 64;

}  // namespace

Engine::Engine(uint64_t seed, int publisher, int life)
    : random_(seed,
              0xE0000 + static_cast<uint64_t>(publisher) * 1000 + static_cast<uint64_t>(life)),
      hash_seed_(Mix(random_.Next())),
      groups_(random_.Between(1, 3)),
      has_cpu_(random_.Percent(50)) {}

uint64_t Engine::NewHash() {
  if (random_.Percent(40)) return static_cast<uint64_t>(random_.Roll(kSharedHashes)) + 1;
  return Mix(hash_seed_ + ++new_hashes_);
}

std::vector<Event> Engine::Step() {
  std::vector<Event> events;
  for (int64_t i = random_.Roll(4); i > 0; --i) {
    if (copies_.size() > kPoolCopies || (!copies_.empty() && random_.Percent(35))) {
      events.push_back(Remove());
    } else if (!copies_.empty() && random_.Percent(20)) {
      events.push_back(StoreAgain());
    } else {
      events.push_back(Store());
    }
  }
  return events;
}

Event Engine::Store() {
  BlockStored event;
  const bool cpu = has_cpu_ && random_.Percent(30);
  event.medium = cpu ? kMediumCpu : kMediumGpu;
  event.group_idx = random_.Roll(groups_);
  event.block_size = kBlockSize;
  event.token_ids.emplace();
  event.kv_cache_spec_kind = *event.group_idx == 0 ? "full_attention" : "sliding_window";
  if (*event.group_idx > 0) event.kv_cache_spec_sliding_window = kWindow;
  if (!copies_.empty() && random_.Percent(70)) {
    const Copy& parent = copies_[static_cast<size_t>(random_.Roll(std::ssize(copies_)))];
    event.parent_block_hash = BlockHash::FromUnsigned(parent.hash);
  }
  for (int64_t i = random_.Between(1, 4); i > 0; --i) {
    copies_.push_back({cpu, *event.group_idx, NewHash()});
    event.block_hashes.push_back(BlockHash::FromUnsigned(copies_.back().hash));
  }
  return event;
}

Event Engine::StoreAgain() {
  BlockStored event = std::get<BlockStored>(Store());
  const size_t stored = event.block_hashes.size();
  copies_.resize(copies_.size() - stored);
  const Copy copy = copies_[static_cast<size_t>(random_.Roll(std::ssize(copies_)))];
  event.medium = copy.cpu ? kMediumCpu : kMediumGpu;
  event.group_idx = copy.group;
  event.kv_cache_spec_kind = copy.group == 0 ? "full_attention" : "sliding_window";
  event.kv_cache_spec_sliding_window.reset();
  if (copy.group > 0) event.kv_cache_spec_sliding_window = kWindow;
  event.block_hashes = {BlockHash::FromUnsigned(copy.hash)};
  copies_.push_back(copy);
  return event;
}

Event Engine::Remove() {
  BlockRemoved event;
  const Copy first = copies_[static_cast<size_t>(random_.Roll(std::ssize(copies_)))];
  event.medium = first.cpu ? kMediumCpu : kMediumGpu;
  event.group_idx = first.group;
  const int64_t max_hashes = random_.Between(1, 4);
  for (size_t i = 0; i < copies_.size() && std::ssize(event.block_hashes) < max_hashes;) {
    if (copies_[i].cpu != first.cpu || copies_[i].group != first.group) {
      ++i;
      continue;
    }
    event.block_hashes.push_back(BlockHash::FromUnsigned(copies_[i].hash));
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return event;
}

Event Engine::Clear() {
  std::erase_if(copies_, [](const Copy& copy) { return !copy.cpu; });
  return AllBlocksCleared();
}

}  // namespace kvcast::sim
