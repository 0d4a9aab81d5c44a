// The reuse rule of each kind agrees with a naive implementation of the engine's search.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kvcast/spec/reuse.h"

namespace kvcast {
namespace {

using Random = std::mt19937_64;

int64_t Pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// A lookup of one group in the engine's terms. All lengths are in tokens.
struct Search {
  GroupSpec spec;
  std::vector<bool> blocks;        // resident blocks
  std::vector<bool> partial_ends;  // by hash unit
  int64_t hash_block_size = 1;
  int64_t alignment = 1;
  int64_t max_tokens = 0;
  bool has_block(int64_t i) const {
    return i < static_cast<int64_t>(blocks.size()) && blocks[static_cast<size_t>(i)];
  }
  bool has_end(int64_t tokens) const {
    const int64_t i = tokens / hash_block_size - 1;
    return i < static_cast<int64_t>(partial_ends.size()) && partial_ends[static_cast<size_t>(i)];
  }
};

int64_t Floor(int64_t value, int64_t step) { return value / step * step; }

// Searches left to right to the first missing block, then takes the furthest partial end inside
// this block. EAGLE drops one step. Rounds the result down to the grid.
int64_t SearchFull(const Search& s) {
  const int64_t size = s.spec.block_size;
  int64_t hit = 0;
  while (hit / size < s.max_tokens / size && s.has_block(hit / size)) hit += size;
  if (s.alignment < size) {
    for (int64_t end =
             Floor(std::min(hit + size - s.hash_block_size, s.max_tokens), s.hash_block_size);
         end > hit; end -= s.hash_block_size) {
      if (s.has_end(end)) {
        hit = end;
        break;
      }
    }
  }
  if (s.spec.eagle && hit > 0) hit -= std::min(s.alignment, size);
  return Floor(hit, s.alignment);
}

// Searches right to left for a long enough run of blocks. The right end of the run must give a hit
// on the grid. If no run is long enough, the run at the start of the prompt counts with its length.
int64_t SearchWindow(const Search& s) {
  const int64_t size = s.spec.block_size;
  const int64_t drop = s.spec.eagle ? 1 : 0;
  const int64_t need = CeilDiv(s.spec.sliding_window - 1, size) + drop;
  int64_t run = 0;
  int64_t end = -1;
  for (int64_t i = s.max_tokens / size - 1; i >= 0 && end < 0; --i) {
    if (!s.has_block(i)) {
      run = 0;
      continue;
    }
    if (run == 0 && (i + 1 - drop) * size % s.alignment != 0) continue;
    if (++run >= need) end = i + run;
  }
  if (end < 0) end = Floor(run * size, s.alignment) / size;
  return end == 0 ? 0 : Floor((end - drop) * size, s.alignment);
}

// All blocks before the chunk that contains the limit count as present. Searches left to right to
// the first missing block.
int64_t SearchChunked(const Search& s) {
  const int64_t size = s.spec.block_size;
  int64_t hit = Floor(s.max_tokens, s.spec.chunk_size);
  while (hit / size < s.max_tokens / size && s.has_block(hit / size)) hit += size;
  return hit;
}

// Searches right to left for one state that ends on the grid.
int64_t SearchMamba(const Search& s) {
  const int64_t size = s.spec.block_size;
  for (int64_t end = Floor(s.max_tokens, s.alignment); end > 0; end -= s.alignment) {
    if (end % size == 0 ? s.has_block(end / size - 1) : s.has_end(end)) return end;
  }
  return 0;
}

int64_t Naive(const Search& s) {
  if (IsFullKind(s.spec.kind)) return SearchFull(s);
  if (IsWindowKind(s.spec.kind)) return SearchWindow(s);
  return s.spec.kind == SpecKind::kMamba ? SearchMamba(s) : SearchChunked(s);
}

int64_t ByRule(const Search& s) {
  GroupResidency residency{s.spec, Bitmap(static_cast<int64_t>(s.blocks.size())),
                           Bitmap(static_cast<int64_t>(s.partial_ends.size()))};
  for (size_t i = 0; i < s.blocks.size(); ++i) {
    if (s.blocks[i]) residency.blocks.Set(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < s.partial_ends.size(); ++i) {
    if (s.partial_ends[i]) residency.partial_ends.Set(static_cast<int64_t>(i));
  }
  const Bitmap usable =
      UsableBoundaries(residency, s.hash_block_size, s.max_tokens / s.hash_block_size, s.alignment);
  return HighestBoundary(usable, s.alignment / s.hash_block_size) * s.hash_block_size;
}

// Random bits, of which at most about 30 % are false. The result may span several words of a
// bitmap.
std::vector<bool> RandomBits(Random& random, int64_t count) {
  std::vector<bool> bits;
  const int64_t holes = Pick(random, 0, 30);
  for (int64_t i = 0; i < count; ++i) bits.push_back(Pick(random, 0, 99) >= holes);
  return bits;
}

Search RandomSearch(Random& random, SpecKind kind, bool eagle) {
  Search s;
  s.spec.kind = kind;
  s.spec.eagle = eagle;
  s.hash_block_size = Pick(random, 1, 4);
  s.spec.block_size = s.hash_block_size << Pick(random, 0, 2);
  s.spec.sliding_window = Pick(random, 0, 20) == 0 ? 1 : Pick(random, 2, 80 * s.spec.block_size);
  s.spec.chunk_size = s.spec.block_size * Pick(random, 1, 70);
  const int64_t blocks = Pick(random, 0, 200);
  s.blocks = RandomBits(random, blocks);
  const bool inside_blocks = !IsWindowKind(kind) && kind != SpecKind::kChunkedLocalAttention;
  s.alignment = s.spec.block_size;
  if (kind != SpecKind::kChunkedLocalAttention) s.alignment <<= Pick(random, 0, 2);
  if (inside_blocks && Pick(random, 0, 1) == 0) {
    s.alignment = s.hash_block_size;
    s.partial_ends = RandomBits(random, blocks * s.spec.block_size / s.hash_block_size);
    const int64_t per_block = s.spec.block_size / s.hash_block_size;
    for (size_t i = 0; i < s.partial_ends.size(); ++i) {
      const bool inside = (static_cast<int64_t>(i) + 1) % per_block != 0;
      s.partial_ends[i] = inside && s.partial_ends[i] && Pick(random, 0, 3) == 0;
    }
  }
  s.max_tokens = Pick(random, 0, (blocks + 2) * s.spec.block_size);
  return s;
}

void CompareOnRandomResidency(SpecKind kind, bool eagle) {
  int64_t hits = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    const Search s = RandomSearch(random, kind, eagle);
    const int64_t expected = Naive(s);
    hits += expected > 0 ? 1 : 0;
    ASSERT_EQ(ByRule(s), expected) << "seed " << seed << " unit " << s.hash_block_size << " block "
                                   << s.spec.block_size << " window " << s.spec.sliding_window
                                   << " grid " << s.alignment << " max " << s.max_tokens;
  }
  EXPECT_GT(hits, 500);
}

TEST(ReuseRules, FullAttentionServesItsLeadingBlocksAndItsPartialEnd) {
  CompareOnRandomResidency(SpecKind::kFullAttention, false);
}

TEST(ReuseRules, FullAttentionWithEagleDropsOneStep) {
  CompareOnRandomResidency(SpecKind::kMlaAttention, true);
}

TEST(ReuseRules, SlidingWindowNeedsTheBlocksOfTheWindowBeforeTheBoundary) {
  CompareOnRandomResidency(SpecKind::kSlidingWindow, false);
}

TEST(ReuseRules, SlidingWindowWithEagleNeedsTheBlockAfterTheBoundaryToo) {
  CompareOnRandomResidency(SpecKind::kSlidingWindowMla, true);
}

TEST(ReuseRules, ChunkedLocalNeedsTheBlocksOfTheChunkBeforeTheBoundary) {
  CompareOnRandomResidency(SpecKind::kChunkedLocalAttention, false);
}

TEST(ReuseRules, MambaNeedsTheStateAtTheBoundaryAndIgnoresEagle) {
  CompareOnRandomResidency(SpecKind::kMamba, false);
  CompareOnRandomResidency(SpecKind::kMamba, true);
}

// True if the group can serve the boundary, by the definition of its kind.
bool UsableByDefinition(const Search& s, int64_t boundary) {
  const int64_t size = s.spec.block_size;
  int64_t first = 0;
  if (IsWindowKind(s.spec.kind)) {
    // The lookup needs one block even if the window reads none.
    const int64_t need = std::max<int64_t>(1, CeilDiv(s.spec.sliding_window - 1, size));
    first = std::max<int64_t>(0, boundary - need);
  }
  if (s.spec.kind == SpecKind::kChunkedLocalAttention) {
    first = Floor(boundary * size, s.spec.chunk_size) / size;
  }
  if (s.spec.kind == SpecKind::kMamba) first = std::max<int64_t>(0, boundary - 1);
  for (int64_t i = first; i < boundary; ++i) {
    if (!s.has_block(i)) return false;
  }
  return true;
}

TEST(ReuseRules, EveryBoundaryFollowsTheDefinitionOfItsKind) {
  const SpecKind kinds[] = {SpecKind::kFullAttention, SpecKind::kSlidingWindow,
                            SpecKind::kChunkedLocalAttention, SpecKind::kMamba};
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    Random random(seed);
    Search s = RandomSearch(random, kinds[seed % 4], false);
    const auto blocks = static_cast<int64_t>(s.blocks.size());
    GroupResidency residency{s.spec, Bitmap(blocks), {}};
    for (int64_t i = 0; i < blocks; ++i) {
      if (s.has_block(i)) residency.blocks.Set(i);
    }
    const Bitmap usable = UsableBoundaries(residency, s.spec.block_size, blocks);
    ASSERT_EQ(usable.size(), blocks + 1);
    for (int64_t b = 0; b <= blocks; ++b) {
      ASSERT_EQ(usable.Test(b), UsableByDefinition(s, b)) << "seed " << seed << " boundary " << b;
    }
  }
}

TEST(ReuseRules, KindsOutsidePrefixCachingAreUsableEverywhere) {
  GroupResidency residency;
  residency.spec.kind = SpecKind::kCrossAttention;
  const Bitmap usable = UsableBoundaries(residency, 16, 100);
  for (int64_t b = 0; b <= 100; ++b) EXPECT_TRUE(usable.Test(b));
}

}  // namespace
}  // namespace kvcast
