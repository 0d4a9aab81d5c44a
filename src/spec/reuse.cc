// SPDX-License-Identifier: Apache-2.0
#include "kvcast/spec/reuse.h"

#include <algorithm>
#include <bit>

#include "src/base/check.h"
#include "src/spec/window.h"

namespace kvcast {
namespace {

constexpr int64_t kWordBits = 64;

// Sets the bits [0, end).
void SetPrefix(Bitmap& bitmap, int64_t end) {
  const auto words = bitmap.words();
  const auto full = static_cast<size_t>(end / kWordBits);
  std::fill(words.begin(), words.begin() + static_cast<ptrdiff_t>(full), ~uint64_t{0});
  if (end % kWordBits != 0) words[full] |= (uint64_t{1} << (end % kWordBits)) - 1;
}

// Number of set bits before the first clear bit, at most `limit`.
int64_t LeadingOnes(const Bitmap& bitmap, int64_t limit) {
  const auto words = bitmap.words();
  for (size_t w = 0; w < words.size(); ++w) {
    const int ones = std::countr_one(words[w]);
    if (ones < kWordBits) {
      return std::min(limit, static_cast<int64_t>(w) * kWordBits + ones);
    }
  }
  return std::min(limit, bitmap.size());
}

// bitmap[j] &= bitmap[j - shift]. Bits before 0 count as set. REQUIRES: shift > 0.
void AndWithShifted(Bitmap& bitmap, int64_t shift) {
  const auto words = bitmap.words();
  const int64_t word_shift = shift / kWordBits;
  const int bit_shift = static_cast<int>(shift % kWordBits);
  const auto word_at = [&words](int64_t w) {
    return w < 0 ? ~uint64_t{0} : words[static_cast<size_t>(w)];
  };
  // From the last word to the first, so that every source word is read before it changes.
  for (auto w = static_cast<int64_t>(words.size()) - 1; w >= 0; --w) {
    uint64_t shifted = word_at(w - word_shift) << bit_shift;
    if (bit_shift != 0) shifted |= word_at(w - word_shift - 1) >> (kWordBits - bit_shift);
    words[static_cast<size_t>(w)] &= shifted;
  }
}

// Bit j of the result is set if block j - 1 is resident. Bit 0 is set.
Bitmap EndsOfResidentBlocks(const Bitmap& blocks, int64_t limit) {
  Bitmap ends(limit + 1);
  const auto source = blocks.words();
  const auto target = ends.words();
  for (size_t w = 0; w < target.size(); ++w) {
    const uint64_t low = w < source.size() ? source[w] << 1 : 0;
    const uint64_t carry = w == 0 ? 1 : (w - 1 < source.size() ? source[w - 1] >> 63 : 0);
    target[w] = low | carry;
  }
  return ends;
}

// The result is in hash units. All boundaries are usable up to the last boundary that the leading
// blocks and a partial entry after them cover. With EAGLE, the last drop unit (see DropUnit) is
// subtracted.
Bitmap FullBoundaries(const GroupResidency& residency, int64_t hash_block_size, int64_t max_units,
                      int64_t alignment) {
  const int64_t units_per_block = residency.spec.block_size / hash_block_size;
  int64_t covered = LeadingOnes(residency.blocks, max_units / units_per_block) * units_per_block;
  const int64_t last_inside = std::min(covered + units_per_block - 1, max_units);
  for (int64_t end = last_inside; end > covered; --end) {
    if (residency.partial_ends.Test(end - 1)) {
      covered = end;
      break;
    }
  }
  if (residency.spec.eagle) {
    const int64_t dropped = std::min(alignment, residency.spec.block_size) / hash_block_size;
    covered = std::max<int64_t>(0, covered - dropped);
  }
  Bitmap usable(max_units + 1);
  SetPrefix(usable, covered + 1);
  return usable;
}

// EAGLE on a grid of `step` > 1 blocks, near the start of the prompt. If a run of resident blocks
// starts at block 0, the lookup rounds the run down to the grid, drops the last block, and rounds
// down again.
void DropStepNearStart(Bitmap& usable, const Bitmap& blocks, int64_t need, int64_t step,
                       int64_t limit) {
  const int64_t run = LeadingOnes(blocks, limit);
  Bitmap kept(usable.size());
  kept.Set(0);
  for (int64_t j = step; j < usable.size(); j += step) {
    const bool reaches_start = j < need;
    const bool ok = reaches_start ? j + step < need && j + step + 1 <= run : usable.Test(j);
    if (ok) kept.Set(j);
  }
  usable = std::move(kept);
}

// The limit and the result are in blocks.
Bitmap WindowBoundaries(const GroupResidency& residency, int64_t limit, int64_t alignment) {
  const GroupSpec& spec = residency.spec;
  const int64_t need = internal::RequiredWindowBlocks(spec);
  Bitmap usable = EndsOfResidentBlocks(residency.blocks, limit);
  if (need == 0) SetPrefix(usable, limit + 1);
  for (int64_t have = 1; have < need && have <= limit;) {
    const int64_t shift = std::min(have, need - have);
    AndWithShifted(usable, shift);
    have += shift;
  }
  if (!spec.eagle) return usable;
  const auto words = usable.words();
  const auto blocks = residency.blocks.words();
  for (size_t w = 0; w < words.size(); ++w) words[w] &= w < blocks.size() ? blocks[w] : 0;
  // The block after the last boundary lies beyond the limit.
  if (usable.Test(limit))
    words[static_cast<size_t>(limit / kWordBits)] ^= uint64_t{1} << (limit % kWordBits);
  usable.Set(0);
  const int64_t step = alignment / spec.block_size;
  if (step > 1) DropStepNearStart(usable, residency.blocks, need, step, limit);
  return usable;
}

// The limit and the result are in blocks.
Bitmap ChunkedBoundaries(const GroupResidency& residency, int64_t limit) {
  const GroupSpec& spec = residency.spec;
  KV_CHECK(spec.chunk_size > 0 && spec.chunk_size % spec.block_size == 0);
  const int64_t chunk_blocks = spec.chunk_size / spec.block_size;
  const int64_t blocks_before = residency.tokens_before / spec.block_size;
  Bitmap usable(limit + 1);
  bool chunk_intact = true;
  for (int64_t j = 0; j <= limit; ++j) {
    if (j == 0 || (blocks_before + j) % chunk_blocks == 0) {
      chunk_intact = true;
    } else {
      chunk_intact = chunk_intact && residency.blocks.Test(j - 1);
    }
    if (chunk_intact) usable.Set(j);
  }
  return usable;
}

// Converts boundaries in blocks to boundaries in hash units.
Bitmap Spread(Bitmap blocks, int64_t units_per_block, int64_t max_units) {
  if (units_per_block == 1) return blocks;
  Bitmap units(max_units + 1);
  const auto words = blocks.words();
  for (size_t w = 0; w < words.size(); ++w) {
    for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      const int64_t block = static_cast<int64_t>(w) * kWordBits + std::countr_zero(bits);
      const int64_t unit = block * units_per_block;
      if (unit <= max_units) units.Set(unit);
    }
  }
  return units;
}

// The result is in hash units. States exist at block ends and, as partial entries, at step ends
// inside a block.
Bitmap MambaBoundaries(const GroupResidency& residency, int64_t hash_block_size,
                       int64_t max_units) {
  const int64_t units_per_block = residency.spec.block_size / hash_block_size;
  const int64_t limit = max_units / units_per_block;
  Bitmap usable = Spread(EndsOfResidentBlocks(residency.blocks, limit), units_per_block, max_units);
  const int64_t known = std::min(max_units, residency.partial_ends.size());
  for (int64_t end = 1; end <= known; ++end) {
    if (residency.partial_ends.Test(end - 1)) usable.Set(end);
  }
  return usable;
}

// Clears the bits after the last boundary. The rules that work on whole words may have set them.
Bitmap Trimmed(Bitmap bitmap) {
  const int64_t tail = bitmap.size() % kWordBits;
  if (tail != 0) bitmap.words().back() &= (uint64_t{1} << tail) - 1;
  return bitmap;
}

}  // namespace

int64_t HighestBoundary(const Bitmap& usable, int64_t step) {
  KV_CHECK(step > 0);
  const auto words = usable.words();
  for (size_t w = words.size(); w-- > 0;) {
    for (uint64_t bits = words[w]; bits != 0;) {
      const int bit = kWordBits - 1 - std::countl_zero(bits);
      const int64_t boundary = static_cast<int64_t>(w) * kWordBits + bit;
      if (boundary % step == 0) return boundary;
      bits ^= uint64_t{1} << bit;
    }
  }
  return 0;
}

Bitmap UsableBoundaries(const GroupResidency& residency, int64_t hash_block_size, int64_t max_units,
                        int64_t alignment) {
  const GroupSpec& spec = residency.spec;
  KV_CHECK(hash_block_size > 0 && max_units >= 0 && spec.block_size % hash_block_size == 0);
  if (alignment == 0) alignment = spec.block_size;
  const int64_t units_per_block = spec.block_size / hash_block_size;
  const int64_t limit = max_units / units_per_block;
  if (IsFullKind(spec.kind))
    return FullBoundaries(residency, hash_block_size, max_units, alignment);
  if (spec.kind == SpecKind::kMamba)
    return Trimmed(MambaBoundaries(residency, hash_block_size, max_units));
  if (IsWindowKind(spec.kind)) {
    return Trimmed(
        Spread(Trimmed(WindowBoundaries(residency, limit, alignment)), units_per_block, max_units));
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention) {
    return Spread(ChunkedBoundaries(residency, limit), units_per_block, max_units);
  }
  Bitmap all(max_units + 1);
  SetPrefix(all, max_units + 1);
  return all;
}

}  // namespace kvcast
