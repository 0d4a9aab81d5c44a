// SlabArena: memory for millions of objects that are read at random.
//
// Objects of one size share slabs of 2 MiB. If there are many objects of a size, the arena asks for
// huge pages for their slabs. In such memory, the page table walk is most of the cost of a cache
// miss. An empty slab goes back to the system.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvcast {

// Thread-compatible.
class SlabArena {
 public:
  SlabArena() = default;
  // REQUIRES: all objects are freed.
  ~SlabArena();
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  // Sizes up to 256 bytes are rounded up to multiples of 16, larger sizes to a quarter of a power
  // of two. The memory is aligned to 64 bytes if `bytes` is a multiple of 64, otherwise to 16
  // bytes. The memory is not zeroed. Throws std::bad_alloc.
  void* Allocate(size_t bytes);
  void Free(void* object);

  size_t slabs() const { return slabs_; }
  // Bytes of the allocated objects, after rounding.
  size_t bytes() const { return bytes_; }

 private:
  struct Slab;
  static constexpr size_t kSizes = 63;

  static size_t SizeClass(size_t bytes);
  Slab* NewSlab(size_t size_class, size_t bytes);
  void Release(Slab* slab);
  void Link(Slab* slab);
  void Unlink(Slab* slab);

  std::array<Slab*, kSizes> open_{};        // slabs with room, by size class
  std::array<uint32_t, kSizes> of_size_{};  // number of slabs, by size class
  Slab* spare_ = nullptr;                   // an empty slab
  size_t slabs_ = 0;
  size_t bytes_ = 0;
};

}  // namespace kvcast
