// SPDX-License-Identifier: Apache-2.0
#include "router/index/holder_set.h"

#include <new>

namespace kvcast::router {

HolderSet* HolderSet::New(SlabArena& arena, uint32_t capacity) {
  void* const memory =
      arena.Allocate(sizeof(HolderSet) + EvenCapacity(capacity) * sizeof(HolderId) +
                     size_t{capacity} * 2 * sizeof(uint64_t));
  auto* const set = new (memory) HolderSet(capacity);
  for (uint32_t i = 0; i < capacity; ++i) new (&set->words()[i]) std::atomic<uint64_t>(0);
  return set;
}

void HolderSet::Append(HolderId id, uint64_t bits, uint64_t next) {
  const uint32_t position = size_.load(std::memory_order_relaxed);
  ids()[position] = id;
  nexts()[position] = next;
  // I7: size_ shows the holder after its word and id are written.
  words()[position].store(bits, std::memory_order_relaxed);
  size_.store(position + 1, std::memory_order_release);
}

uint32_t HolderSet::Find(HolderId id) const {
  const uint32_t size = size_.load(std::memory_order_relaxed);
  const HolderId* const all = ids();
  uint32_t i = 0;
  while (i < size && all[i] != id) ++i;
  return i;
}

uint64_t HolderSet::Union() const {
  const uint32_t size = size_.load(std::memory_order_relaxed);
  uint64_t all = 0;
  for (uint32_t i = 0; i < size; ++i)
    all |= nexts()[i] | words()[i].load(std::memory_order_relaxed);
  return all;
}

uint32_t HolderSet::CountHolders() const {
  const uint32_t size = size_.load(std::memory_order_relaxed);
  uint32_t count = 0;
  for (uint32_t i = 0; i < size; ++i) count += !Empty(i);
  return count;
}

}  // namespace kvcast::router
