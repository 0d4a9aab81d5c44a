// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/encode_queue.h"

#include <utility>
#include <variant>

#include "src/base/check.h"

namespace kvcast::stream {
namespace {

struct ItemsOf {
  size_t operator()(const BlockStored& event) const {
    return event.block_hashes.size() + (event.token_ids ? event.token_ids->size() : 0);
  }
  size_t operator()(const BlockRemoved& event) const { return event.block_hashes.size(); }
  size_t operator()(const AllBlocksCleared&) const { return 0; }
};

size_t CountItems(const EventBatch& batch) {
  size_t items = batch.events.size();
  for (const Event& event : batch.events) items += std::visit(ItemsOf(), event);
  return items;
}

}  // namespace

void EncodeQueue::Push(NumberedBatch numbered) {
  KV_CHECK(!full());
  Slot& slot = slots_[(first_ + size_) % kMaxBatches];
  slot.items = CountItems(numbered.batch);
  slot.numbered = std::move(numbered);
  items_ += slot.items;
  ++size_;
}

NumberedBatch EncodeQueue::Pop() {
  KV_CHECK(!empty());
  Slot& slot = slots_[first_];
  first_ = (first_ + 1) % kMaxBatches;
  --size_;
  items_ -= slot.items;
  return std::exchange(slot.numbered, {});
}

}  // namespace kvcast::stream
