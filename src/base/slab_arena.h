// SlabArena: memory for millions of objects that are read at random.
//
// Objects of one size share slabs of 2 MiB. An object of more than 896 KiB has a slab of its own.
// The arena requests huge pages for every slab of a size class except the first slab, and for slabs
// of more than 2 MiB. With small pages, the page table walk is most of the cost of a cache miss.
// The arena keeps one empty slab, and returns further empty slabs to the system.
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

  // Sizes up to 256 bytes are rounded up to multiples of 16. Larger sizes up to 896 KiB are rounded
  // up to a multiple of a quarter of the power of two below them. The memory is aligned to 64 bytes
  // if `bytes` is a multiple of 64, otherwise to 16 bytes. The memory is not zeroed. Throws
  // std::bad_alloc.
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
