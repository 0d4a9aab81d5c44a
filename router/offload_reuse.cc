// SPDX-License-Identifier: Apache-2.0
#include "router/offload_reuse.h"

#include <algorithm>
#include <vector>

namespace kvcast::router {
namespace {

// The group in chunks instead of blocks, the local hit counting as held: it is usable, so that
// whatever a window needs of it is there.
GroupResidency InChunks(const GroupResidency& group, const OffloadQuery& query) {
  GroupResidency chunks{.spec = group.spec};
  GroupSpec& spec = chunks.spec;
  spec.block_size *= query.blocks_per_chunk;
  // One more than the window, because the rule for blocks asks for ceil((W - 1) / block).
  if (spec.kind == SpecKind::kChunkedLocalAttention) {
    spec.kind = SpecKind::kSlidingWindow;
    spec.sliding_window = spec.chunk_size + 1;
  } else if (IsWindowKind(spec.kind)) {
    ++spec.sliding_window;
  }
  chunks.blocks.Resize(query.units * query.unit / spec.block_size);
  const int64_t local = query.local_tokens / spec.block_size;
  for (int64_t i = 0; i < chunks.blocks.size(); ++i) {
    if (i < local || group.blocks.Test((i + 1) * query.blocks_per_chunk - 1)) chunks.blocks.Set(i);
  }
  return chunks;
}

// Which chunk boundaries of one group can be served.
struct ChunkBoundaries {
  int64_t chunk = 0;          // tokens
  int64_t window_chunks = 0;  // that a window needs; 0: a full kind
  Bitmap usable;

  // The longest prefix of at most `tokens` tokens: one that ends inside a chunk needs all of it.
  int64_t Accept(int64_t tokens) const {
    int64_t boundary = std::min(CeilDiv(tokens, chunk), usable.size() - 1);
    while (!usable.Test(boundary)) --boundary;  // boundary 0 is usable
    return std::min(tokens, boundary * chunk);
  }
};

// The longest prefix that loads might serve. A window must be valid at the token that is computed
// last, and a Mamba state is at the end of a chunk.
int64_t MaxTokens(std::span<const GroupResidency> groups, const OffloadQuery& query) {
  int64_t tokens = query.prompt_tokens - (query.full_kinds_only ? 0 : 1);
  for (const GroupResidency& group : groups) {
    if (group.spec.kind != SpecKind::kMamba) continue;
    const int64_t chunk = group.spec.block_size * query.blocks_per_chunk;
    tokens = tokens / chunk * chunk;
  }
  return tokens;
}

ChunkBoundaries BoundariesOf(const GroupResidency& group, const OffloadQuery& query) {
  const GroupResidency chunks = InChunks(group, query);
  const GroupSpec& spec = chunks.spec;
  int64_t window_chunks = 0;
  if (spec.kind == SpecKind::kMamba) window_chunks = 1;
  if (IsWindowKind(spec.kind)) window_chunks = CeilDiv(spec.sliding_window - 1, spec.block_size);
  return {spec.block_size, window_chunks,
          UsableBoundaries(chunks, spec.block_size, chunks.blocks.size())};
}

}  // namespace

int64_t ReusableWithOffload(std::span<const GroupResidency> groups, const OffloadQuery& query) {
  std::vector<ChunkBoundaries> all;
  for (const GroupResidency& group : groups) all.push_back(BoundariesOf(group, query));
  // The connector's order matters where a gain turns out too small: full kinds first, and once;
  // then the windows, the widest first, until they agree.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return (a.window_chunks == 0) != (b.window_chunks == 0) ? a.window_chunks == 0
                                                            : a.window_chunks > b.window_chunks;
  });
  int64_t tokens = MaxTokens(groups, query);
  for (int64_t before = -1; before != tokens;) {
    const bool first_round = before < 0;
    before = tokens;
    for (const ChunkBoundaries& group : all) {
      if (!first_round && group.window_chunks == 0) continue;
      tokens = group.Accept(tokens);
      if (tokens - query.local_tokens < group.chunk) return query.local_tokens;
    }
  }
  return all.empty() ? query.local_tokens : std::min(tokens, query.prompt_tokens - 1);
}

int64_t ReusableWithMirroredPool(std::span<const GroupResidency> groups,
                                 const MirroredPoolQuery& query) {
  std::vector<GroupResidency> behind;
  for (const GroupResidency& group : groups) {
    const int64_t block_size = group.spec.block_size;
    if (query.local_tokens % block_size != 0) return query.local_tokens;
    const int64_t local = query.local_tokens / block_size;
    GroupResidency& rest = behind.emplace_back();
    rest.spec = group.spec;
    rest.blocks.Resize(std::max<int64_t>(group.blocks.size() - local, 0));
    for (int64_t i = 0; i < rest.blocks.size(); ++i) {
      if (group.blocks.Test(local + i)) rest.blocks.Set(i);
    }
  }
  const int64_t max_tokens =
      (query.prompt_tokens - 1 - query.local_tokens) / query.unit * query.unit;
  if (behind.empty() || max_tokens <= 0) return query.local_tokens;
  return query.local_tokens +
         ReusablePrefix(behind, query.unit, query.alignment, max_tokens).tokens;
}

}  // namespace kvcast::router
