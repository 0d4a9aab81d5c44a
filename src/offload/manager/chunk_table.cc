// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/chunk_table.h"

namespace kvcast::offload {

void ChunkList::MoveToNewest(uint32_t chunk) {
  Remove(table_, chunk);
  ChunkEntry& entry = table_[chunk];
  entry.list = this;
  entry.prev = newest_;
  entry.next = kNoChunk;
  (newest_ == kNoChunk ? oldest_ : table_[newest_].next) = chunk;
  newest_ = chunk;
  ++size_;
  slots_ += entry.num_slots;
}

void ChunkList::Remove(ChunkTable& table, uint32_t chunk) {
  if (table[chunk].list != nullptr) table[chunk].list->Unlink(chunk);
}

void ChunkList::Unlink(uint32_t chunk) {
  ChunkEntry& entry = table_[chunk];
  (entry.prev == kNoChunk ? oldest_ : table_[entry.prev].next) = entry.next;
  (entry.next == kNoChunk ? newest_ : table_[entry.next].prev) = entry.prev;
  entry.list = nullptr;
  --size_;
  slots_ -= entry.num_slots;
}

void ChunkList::Clear() {
  oldest_ = newest_ = kNoChunk;
  size_ = slots_ = 0;
}

}  // namespace kvcast::offload
