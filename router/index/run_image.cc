// SPDX-License-Identifier: Apache-2.0
#include "router/index/run_image.h"

#include <algorithm>

#include "kvcast/router/prefix_index.h"

namespace kvcast::router {
namespace {

// Reads `size` integers of 8 bytes.
void ReadIntegers(FieldReader& from, size_t size, std::vector<uint64_t>& to) {
  const std::span<const uint8_t> bytes = from.Raw(size * sizeof(uint64_t));
  to.resize(bytes.size() / sizeof(uint64_t));
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

// Returns a mask with one bit for each block.
uint64_t BlockMask(size_t blocks) {
  return blocks == RunImage::kMaxBlocks ? ~uint64_t{0} : (uint64_t{1} << blocks) - 1;
}

}  // namespace

void RunImage::ReadHashes(FieldReader& from) {
  if (form == BlockHash::Form::kBytes) {
    for (uint32_t i = 0; i < blocks && from.ok(); ++i) {
      byte_strings.push_back(BlockHash::FromBytes(from.Bytes()));
    }
  } else {
    ReadIntegers(from, blocks, integers);
    const auto is_negative = [](uint64_t value) { return static_cast<int64_t>(value) < 0; };
    if (form == BlockHash::Form::kNegative && !std::ranges::all_of(integers, is_negative))
      from.Fail();
  }
  if (stride > 0) ReadIntegers(from, blocks, contents);
}

void RunImage::SkipHashes(FieldReader& from) const {
  if (form == BlockHash::Form::kBytes) {
    for (uint32_t i = 0; i < blocks && from.ok(); ++i) (void)from.Bytes();
  } else {
    (void)from.Raw(blocks * sizeof(uint64_t));
  }
  if (stride > 0) (void)from.Raw(blocks * sizeof(ContentKey));
}

void RunImage::ReadHolderList(FieldReader& from, size_t holder_count, size_t copies_count) {
  constexpr int kPackedBits = 41;  // 1 flag bit and the 40 bits of ImageHolder::Packed
  const uint64_t all = BlockMask(blocks);
  for (size_t i = 0; i < holder_count && from.ok(); ++i) {
    const uint64_t packed_holder = from.Int();
    const uint64_t bits = packed_holder % 2 == 1 ? all : from.Fixed();
    const bool is_tier = (packed_holder >> 1 & 3) < kTiers;
    if (packed_holder >> kPackedBits != 0 || !is_tier || (bits & ~all) != 0) return from.Fail();
    holders.push_back({ImageHolder::Unpacked(packed_holder >> 1), bits});
  }
  for (size_t i = 0; i < copies_count && from.ok(); ++i) {
    Copies copy;
    copy.holder = from.Int(holder_count);
    copy.block = static_cast<uint32_t>(from.Int(RunImage::kMaxBlocks - 1));
    copy.copies = static_cast<uint32_t>(from.Int(~uint32_t{0}));
    if (copy.holder >= holders.size() || copy.copies < 2 ||
        (holders[copy.holder].bits >> copy.block & 1) == 0) {
      return from.Fail();
    }
    copies.push_back(copy);
  }
}

bool RunImage::ReadParts(FieldReader& from, bool with_hashes) {
  integers.clear();
  byte_strings.clear();
  contents.clear();
  holders.clear();
  copies.clear();
  form = static_cast<BlockHash::Form>(from.Int(2));
  blocks = static_cast<uint32_t>(from.Int(kMaxBlocks));
  stride = static_cast<uint32_t>(from.Int(kMaxBlockSize));
  end = static_cast<uint32_t>(from.Int(~uint32_t{0}));
  const size_t holder_count = from.Count(1);
  const size_t copies_count = from.Count(3);
  // If the end of a named run is not proven, the run has only one block; see RunStore::NewBlocks.
  constexpr uint32_t kUnproven = ~uint32_t{0};  // BlockName::kUnproven
  if (blocks == 0 || (stride > 0 && end == kUnproven && blocks > 1)) from.Fail();
  if (with_hashes) {
    ReadHashes(from);
  } else {
    SkipHashes(from);
  }
  ReadHolderList(from, holder_count, copies_count);
  return from.ok();
}

bool RunImage::Read(FieldReader& from) { return ReadParts(from, /*with_hashes=*/true); }

bool RunImage::ReadHolders(FieldReader& from) { return ReadParts(from, /*with_hashes=*/false); }

}  // namespace kvcast::router
