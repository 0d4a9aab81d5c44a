// SlabArena: memory for millions of objects that are read at random.
//
// Objects of one size share slabs of 2 MiB. Where there are many of a size the slabs are asked to
// be huge pages, because most of a cache miss in such memory is the walk of the page table; a slab
// that is empty goes back to the system.
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
  // REQUIRES: all is freed.
  ~SlabArena();
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  // Sizes up to 256 are rounded up to multiples of 16, larger ones to a quarter of a power of two.
  // Aligned to 64 bytes where `bytes` is a multiple of 64, else to 16. Not zeroed. Throws
  // std::bad_alloc.
  void* Allocate(size_t bytes);
  void Free(void* object);

  size_t slabs() const { return slabs_; }
  // Of the objects.
  size_t bytes() const { return bytes_; }

 private:
  struct Slab;
  static constexpr size_t kSizes = 63;

  static size_t SizeClass(size_t bytes);
  Slab* NewSlab(size_t size_class, size_t bytes);
  void Release(Slab* slab);
  void Link(Slab* slab);
  void Unlink(Slab* slab);

  std::array<Slab*, kSizes> open_{};        // slabs with room, by size
  std::array<uint32_t, kSizes> of_size_{};  // slabs of that size
  Slab* spare_ = nullptr;                   // an empty one
  size_t slabs_ = 0;
  size_t bytes_ = 0;
};

}  // namespace kvcast
