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

uint64_t AllBlocks(size_t blocks) {
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
    const auto fits = [](uint64_t value) { return static_cast<int64_t>(value) < 0; };
    if (form == BlockHash::Form::kNegative && !std::ranges::all_of(integers, fits)) from.Fail();
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

void RunImage::ReadHeld(FieldReader& from, size_t held, size_t counts) {
  const uint64_t all = AllBlocks(blocks);
  for (size_t i = 0; i < held && from.ok(); ++i) {
    const uint64_t word = from.Int();
    const uint64_t bits = word % 2 == 1 ? all : from.Fixed();
    if (word >> 41 != 0 || (word >> 1 & 3) >= kTiers || (bits & ~all) != 0) return from.Fail();
    holders.push_back({ImageHolder::Unpacked(word >> 1), bits});
  }
  for (size_t i = 0; i < counts && from.ok(); ++i) {
    Copies copy;
    copy.held = from.Int(held);
    copy.block = static_cast<uint32_t>(from.Int(RunImage::kMaxBlocks - 1));
    copy.copies = static_cast<uint32_t>(from.Int(~uint32_t{0}));
    if (copy.held >= holders.size() || copy.copies < 2 ||
        (holders[copy.held].bits >> copy.block & 1) == 0) {
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
  const size_t held = from.Count(1);
  const size_t counts = from.Count(3);
  // A named run without a proof has one block; see RunStore::NewBlocks.
  constexpr uint32_t kUnproven = ~uint32_t{0};
  if (blocks == 0 || (stride > 0 && end == kUnproven && blocks > 1)) from.Fail();
  if (with_hashes) {
    ReadHashes(from);
  } else {
    SkipHashes(from);
  }
  ReadHeld(from, held, counts);
  return from.ok();
}

bool RunImage::Read(FieldReader& from) { return ReadParts(from, /*with_hashes=*/true); }

bool RunImage::ReadHolders(FieldReader& from) { return ReadParts(from, /*with_hashes=*/false); }

}  // namespace kvcast::router
