// RunImage: one run of blocks and its holders, as bytes of a saved state.
//
// Layout of a run: form of the hashes (1 byte), number n of blocks (1 byte), then varints: stride,
// end, number of holders, number of copy counts. Then n hashes and, if stride > 0, n content keys
// of 8 bytes. An integer hash has 8 bytes; a byte string has its size (varint) before its bytes.
// Then the holders: 2 * holder + 1 (varint) if the holder has all n blocks; otherwise 2 * holder
// (varint) and the bits of the blocks (8 bytes). Then the copy counts: position of the holder in
// this run, block, and number of copies (varints). A holder is the number that ImageHolder packs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/tier.h"
#include "kvcast/router/content_key.h"
#include "src/base/byte_fields.h"

namespace kvcast::router {

// One (worker, tier, group) of a saved state.
struct ImageHolder {
  uint32_t worker = 0;  // number of the worker in the saved state
  Tier tier = Tier::kGpu;
  uint8_t group = 0;

  uint64_t Packed() const {
    return uint64_t{worker} << 8 | uint64_t{group} << 2 | static_cast<uint64_t>(tier);
  }
  static ImageHolder Unpacked(uint64_t packed) {
    return {static_cast<uint32_t>(packed >> 8), static_cast<Tier>(packed & 3),
            static_cast<uint8_t>(packed >> 2 & 63)};
  }
};

// Takes the bytes of an image. Put uses only the memory of the sink, and calls only `flush`, so
// that it may run in a forked child of a process with threads.
class ImageSink {
 public:
  using Flush = std::function<void(std::span<const uint8_t> bytes)>;

  // `buffer`: the memory of the sink, at least 64 bytes. It must exist as long as the sink. `flush`
  // takes the bytes; in a forked child, it must not allocate memory and must not take a lock.
  ImageSink(std::span<uint8_t> buffer, Flush flush) : buffer_(buffer), flush_(std::move(flush)) {}

  void Put(const void* data, size_t size) {
    const auto* from = static_cast<const uint8_t*>(data);
    while (size > 0) {
      const size_t part = std::min(size, buffer_.size() - used_);
      std::memcpy(buffer_.data() + used_, from, part);
      used_ += part;
      from += part;
      size -= part;
      if (used_ == buffer_.size()) FlushAll();
    }
  }
  void PutVarint(uint64_t value) {
    std::array<uint8_t, kMaxVarint> bytes;
    Put(bytes.data(), static_cast<size_t>(kvcast::PutVarint(value, bytes.data()) - bytes.data()));
  }
  // Flushes all bytes.
  void FlushAll() {
    if (used_ > 0) flush_(buffer_.first(used_));
    used_ = 0;
  }

 private:
  const std::span<uint8_t> buffer_;
  const Flush flush_;
  size_t used_ = 0;
};

// The size of an image: the blocks and the runs of named blocks, by form of the hashes.
struct ImageSize {
  struct OfForm {
    uint64_t blocks = 0;
    uint64_t named_runs = 0;
  };
  static constexpr size_t kForms = 3;
  std::array<OfForm, kForms> forms;

  void Add(const ImageSize& other) {
    for (size_t i = 0; i < kForms; ++i) {
      forms[i].blocks += other.forms[i].blocks;
      forms[i].named_runs += other.forms[i].named_runs;
    }
  }
};

struct RunImage {
  static constexpr size_t kMaxBlocks = 64;

  struct Held {
    ImageHolder holder;
    uint64_t bits = 0;  // bit i: block i
  };
  struct Copies {
    size_t holder = 0;  // index into `holders`
    uint32_t block = 0;
    uint32_t copies = 0;  // at least 2
  };
  BlockHash::Form form = BlockHash::Form::kUnsigned;
  uint32_t blocks = 0;
  uint32_t stride = 0;  // tokens of each block; 0: the blocks are unnamed
  uint32_t end = 0;     // BlockName::end_or_unproven of the first block
  // The hashes. Only the vector of the form has elements.
  std::vector<uint64_t> integers;
  std::vector<BlockHash> byte_strings;
  std::vector<ContentKey> contents;  // empty: the blocks are unnamed
  std::vector<Held> holders;
  std::vector<Copies> copies;

  BlockHash hash(size_t block) const {
    switch (form) {
      case BlockHash::Form::kUnsigned:
        return BlockHash::FromUnsigned(integers[block]);
      case BlockHash::Form::kNegative:
        return BlockHash::FromSigned(static_cast<int64_t>(integers[block]));
      case BlockHash::Form::kBytes:
        break;
    }
    return byte_strings[block];
  }

  void AddTo(ImageSize& size) const {
    ImageSize::OfForm& of = size.forms[static_cast<size_t>(form)];
    of.blocks += blocks;
    of.named_runs += stride > 0;
  }

  // Reads one run. False: the bytes are damaged. Keeps the memory of the vectors.
  bool Read(FieldReader& from);
  // Like Read, but leaves the hashes and the contents empty. These bytes are not checked.
  bool ReadHolders(FieldReader& from);

 private:
  bool ReadParts(FieldReader& from, bool with_hashes);
  void ReadHashes(FieldReader& from);
  void SkipHashes(FieldReader& from) const;
  void ReadHolderList(FieldReader& from, size_t holder_count, size_t copies_count);
};

}  // namespace kvcast::router
