// SPDX-License-Identifier: Apache-2.0
#include "router/index/run_image.h"

#include "kvcast/router/prefix_index.h"

namespace kvcast::router {
namespace {

constexpr uint64_t kMaxRunBlocks = 64;

BlockHash HashFrom(FieldReader& from, BlockHash::Form form) {
  if (form == BlockHash::Form::kBytes) return BlockHash::FromBytes(from.Bytes());
  const uint64_t value = from.Fixed();
  const bool negative = static_cast<int64_t>(value) < 0;
  if (form == BlockHash::Form::kUnsigned) return BlockHash::FromUnsigned(value);
  if (!negative) from.Fail();
  return BlockHash::FromSigned(static_cast<int64_t>(value));
}

uint64_t AllBlocks(size_t blocks) {
  return blocks == kMaxRunBlocks ? ~uint64_t{0} : (uint64_t{1} << blocks) - 1;
}

}  // namespace

bool RunImage::Read(FieldReader& from) {
  const auto form = static_cast<BlockHash::Form>(from.Int(2));
  const size_t blocks = from.Int(kMaxRunBlocks);
  stride = static_cast<uint32_t>(from.Int(kMaxBlockSize));
  end = static_cast<uint32_t>(from.Int(~uint32_t{0}));
  const size_t held = from.Count(1);
  const size_t counts = from.Count(3);
  hashes.clear();
  contents.clear();
  holders.clear();
  copies.clear();
  for (size_t i = 0; i < blocks && from.ok(); ++i) hashes.push_back(HashFrom(from, form));
  for (size_t i = 0; stride > 0 && i < blocks && from.ok(); ++i) contents.push_back(from.Fixed());
  for (size_t i = 0; i < held && from.ok(); ++i) {
    const uint64_t word = from.Int();
    const uint64_t bits = word % 2 == 1 ? AllBlocks(blocks) : from.Fixed();
    if (word >> 41 != 0 || (word >> 1 & 3) >= kTiers || (bits & ~AllBlocks(blocks)) != 0) {
      from.Fail();
      break;
    }
    holders.push_back({ImageHolder::Unpacked(word >> 1), bits});
  }
  for (size_t i = 0; i < counts && from.ok(); ++i) {
    Copies copy;
    copy.held = from.Int(held);
    copy.block = static_cast<uint32_t>(from.Int(kMaxRunBlocks - 1));
    copy.copies = static_cast<uint32_t>(from.Int(~uint32_t{0}));
    if (copy.held >= holders.size() || copy.copies < 2 ||
        (holders[copy.held].bits >> copy.block & 1) == 0) {
      from.Fail();
      break;
    }
    copies.push_back(copy);
  }
  if (blocks == 0) from.Fail();
  return from.ok();
}

}  // namespace kvcast::router
