// SPDX-License-Identifier: Apache-2.0
#include "src/base/slab_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "src/base/check.h"
#include "src/base/huge_pages.h"

namespace kvcast {
namespace {

constexpr size_t kSlabBytes = kHugePageBytes;
constexpr size_t kHeaderBytes = 128;

constexpr std::array<size_t, 63> ObjectSizes() {
  std::array<size_t, 63> sizes{};
  size_t size = 16;
  for (size_t& each : sizes) {
    each = size;
    size += size < 256 ? 16 : std::bit_floor(size) / 4;
  }
  return sizes;
}
constexpr std::array<size_t, 63> kObjectSizes = ObjectSizes();
constexpr size_t kLargest = kObjectSizes.back();
static_assert(kLargest > kSlabBytes / 4 && kLargest <= (kSlabBytes - kHeaderBytes) / 2);

// Maps memory that starts at a multiple of kSlabBytes. Pages that are not touched cost no memory.
void* MapAligned(size_t bytes) {
  const size_t mapped = bytes + kSlabBytes;
  void* const memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t aligned = (begin + kSlabBytes - 1) / kSlabBytes * kSlabBytes;
  if (aligned > begin) munmap(memory, aligned - begin);
  const uintptr_t end = aligned + bytes;
  if (begin + mapped > end) munmap(reinterpret_cast<void*>(end), begin + mapped - end);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

struct SlabArena::Slab {
  size_t size_class;
  size_t object_bytes;
  size_t mapped_bytes;
  uint32_t capacity;  // in objects
  uint32_t used;      // objects in use
  uint32_t touched;   // objects that were used at least once; only these may be in `free`
  void* free;         // list of free touched objects, linked by their first word
  Slab* previous;
  Slab* next;
};

SlabArena::~SlabArena() {
  KV_CHECK(slabs_ == 0);
  if (spare_ != nullptr) munmap(spare_, kSlabBytes);
}

size_t SlabArena::SizeClass(size_t bytes) {
  return static_cast<size_t>(std::lower_bound(kObjectSizes.begin(), kObjectSizes.end(), bytes) -
                             kObjectSizes.begin());
}

SlabArena::Slab* SlabArena::NewSlab(size_t size_class, size_t bytes) {
  static_assert(sizeof(Slab) <= kHeaderBytes);
  const size_t mapped = (kHeaderBytes + bytes + kSlabBytes - 1) / kSlabBytes * kSlabBytes;
  void* memory = mapped == kSlabBytes ? std::exchange(spare_, nullptr) : nullptr;
  if (memory == nullptr) memory = MapAligned(mapped);
  // The first slab of a size keeps small pages, because most of it may stay untouched.
  if (of_size_[size_class] > 0 || mapped > kSlabBytes) AdviseHugePages(memory, mapped);
  ++of_size_[size_class];
  ++slabs_;
  return new (memory) Slab{
      .size_class = size_class,
      .object_bytes = bytes,
      .mapped_bytes = mapped,
      .capacity = bytes > kLargest ? 1 : static_cast<uint32_t>((mapped - kHeaderBytes) / bytes),
      .used = 0,
      .touched = 0,
      .free = nullptr,
      .previous = nullptr,
      .next = nullptr};
}

void SlabArena::Link(Slab* slab) {
  Slab*& first = open_[slab->size_class];
  slab->previous = nullptr;
  slab->next = first;
  if (first != nullptr) first->previous = slab;
  first = slab;
}

void SlabArena::Unlink(Slab* slab) {
  if (slab->previous != nullptr) {
    slab->previous->next = slab->next;
  } else {
    open_[slab->size_class] = slab->next;
  }
  if (slab->next != nullptr) slab->next->previous = slab->previous;
}

void SlabArena::Release(Slab* slab) {
  --of_size_[slab->size_class];
  --slabs_;
  // Keep one empty slab for the next request, of any size class. If the number of objects varies
  // around a full slab, slabs would otherwise be mapped and unmapped repeatedly.
  if (slab->mapped_bytes == kSlabBytes) std::swap(slab, spare_);
  if (slab != nullptr) munmap(slab, slab->mapped_bytes);
}

void* SlabArena::Allocate(size_t bytes) {
  // A larger object has a slab of its own. That slab is counted with the largest size class.
  static_assert(kObjectSizes.size() == kSizes);
  const size_t size_class = std::min(SizeClass(bytes), kSizes - 1);
  const size_t object_bytes = bytes > kLargest ? bytes : kObjectSizes[size_class];
  Slab* slab = bytes > kLargest ? nullptr : open_[size_class];
  if (slab == nullptr) {
    slab = NewSlab(size_class, object_bytes);
    if (slab->capacity > 1) Link(slab);
  }
  void* object = slab->free;
  if (object != nullptr) {
    slab->free = *static_cast<void**>(object);
  } else {
    object = reinterpret_cast<std::byte*>(slab) + kHeaderBytes + slab->touched++ * object_bytes;
  }
  if (++slab->used == slab->capacity && slab->capacity > 1) Unlink(slab);
  bytes_ += slab->object_bytes;
  return object;
}

void SlabArena::Free(void* object) {
  auto* const slab =
      reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(object) / kSlabBytes * kSlabBytes);
  bytes_ -= slab->object_bytes;
  if (slab->capacity == 1) {
    Release(slab);
    return;
  }
  *static_cast<void**>(object) = slab->free;
  slab->free = object;
  if (slab->used-- == slab->capacity) Link(slab);
  if (slab->used > 0) return;
  Unlink(slab);
  Release(slab);
}

}  // namespace kvcast
