// Copies are cut into aligned and unaligned pieces that cover every byte once.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/pieces.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace kvcast::cuda {
namespace {

CopyOp Rows(size_t row_bytes, size_t src_pitch, size_t dst_pitch, uint32_t rows) {
  return {nullptr, nullptr, row_bytes, src_pitch, dst_pitch, rows};
}

TEST(Pieces, AreCutByBytesNotByRows) {
  Pieces aligned, unaligned;
  CutIntoPieces(Rows(40'000, 0, 0, 1), 1 << 20, 1 << 30, aligned, unaligned);
  EXPECT_EQ(aligned.bytes, (std::vector<uint32_t>{16384, 16384, 7232}));
  EXPECT_EQ(aligned.src[2], (1u << 20) + 32768);
  EXPECT_EQ(aligned.dst[2], (1u << 30) + 32768);
  EXPECT_EQ(unaligned.size(), 0u);
}

TEST(Pieces, UnalignedHeadAndTailAreSeparatePieces) {
  Pieces aligned, unaligned;
  // Both addresses are 8 bytes past a multiple of 16.
  CutIntoPieces(Rows(100, 0, 0, 1), 1000, 2024, aligned, unaligned);
  ASSERT_EQ(aligned.size(), 1u);
  EXPECT_EQ(aligned.src[0], 1008u);
  EXPECT_EQ(aligned.bytes[0], 80u);
  EXPECT_EQ(unaligned.bytes, (std::vector<uint32_t>{8, 12}));
}

TEST(Pieces, RowsThatNeverAlignOnBothSidesAreUnaligned) {
  Pieces aligned, unaligned;
  CutIntoPieces(Rows(20'000, 0, 0, 1), 1000, 2000, aligned, unaligned);
  EXPECT_EQ(aligned.size(), 0u);
  EXPECT_EQ(unaligned.bytes, (std::vector<uint32_t>{16384, 3616}));
}

TEST(Pieces, EachByteIsCopiedOnceToTheRightAddress) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const size_t row_bytes = 1 + random() % 40'000;
    const auto rows = static_cast<uint32_t>(1 + random() % 3);
    const CopyOp op = Rows(row_bytes, row_bytes + random() % 40, row_bytes + random() % 40, rows);
    const uint64_t src = 1'000'000 + random() % 64;
    const uint64_t dst = 9'000'000 + random() % 64;
    Pieces aligned, unaligned;
    CutIntoPieces(op, src, dst, aligned, unaligned);
    std::map<uint64_t, std::pair<uint64_t, size_t>> by_dst;
    for (const Pieces* pieces : {&aligned, &unaligned}) {
      for (size_t i = 0; i < pieces->size(); ++i) {
        ASSERT_GT(pieces->bytes[i], 0u);
        ASSERT_LE(pieces->bytes[i], kMaxPieceBytes);
        if (pieces == &aligned) {
          ASSERT_EQ((pieces->src[i] | pieces->dst[i] | pieces->bytes[i]) % kPieceAlignment, 0u);
        }
        by_dst[pieces->dst[i]] = {pieces->src[i], pieces->bytes[i]};
      }
    }
    ASSERT_EQ(by_dst.size(), aligned.size() + unaligned.size());
    auto it = by_dst.begin();
    for (uint32_t row = 0; row < rows; ++row) {
      for (size_t offset = 0; offset < row_bytes; ++it) {
        ASSERT_NE(it, by_dst.end());
        ASSERT_EQ(it->first, dst + row * op.dst_pitch + offset);
        ASSERT_EQ(it->second.first, src + row * op.src_pitch + offset);
        offset += it->second.second;
        ASSERT_LE(offset, row_bytes);
      }
    }
    ASSERT_EQ(it, by_dst.end());
  }
}

}  // namespace
}  // namespace kvcast::cuda
