// SPDX-License-Identifier: Apache-2.0
#include "router/sample/store_path.h"

#include <algorithm>

namespace kvcast::router {
namespace {

struct Reader {
  const BlockStored& event;
  const SpanStart& start;
  const StoreContent& content;
  const ContentKeys& keys;
  size_t hash_block_size;
  size_t block;
  bool readable;  // keys inside blocks can be computed from the tokens

  ContentKey Begin() const { return start.at_root ? keys.Root(ScopeOf(event)) : start.parent; }
  std::span<const TokenId> Tokens() const { return *event.token_ids; }

  // `contents` has one element for each block of the span. The path ends at the first block whose
  // name is not known.
  void ReadDense(StorePath& path) const {
    const size_t stride = block / hash_block_size;
    const size_t blocks = content.contents.size();
    path.keys.resize(blocks * stride);
    path.ends.reserve(blocks);
    ContentKey before = readable && stride > 1 ? Begin() : kUnnamed;
    for (size_t i = 0; i < blocks; ++i) {
      const ContentKey name = content.contents[i];
      if (name == kUnnamed) {
        path.whole = false;
        path.keys.resize(i * stride);
        return;
      }
      const auto of_block = std::span(path.keys).subspan(i * stride, stride);
      if (readable && stride > 1) {
        keys.ExtendBy(before, Tokens().subspan(i * block, block), hash_block_size, of_block);
        // If the block contains images, its name is not the key of its tokens. The keys of its
        // inner prefixes are then not known.
        if (of_block.back() != name) std::ranges::fill(of_block, kUnnamed);
        before = name;
      }
      of_block.back() = name;
      path.ends.push_back(static_cast<uint32_t>((i + 1) * stride - 1));
    }
  }

  // The keys of the tokens show where the named blocks are in the span.
  void ReadSparse(StorePath& path) const {
    if (!readable) return;
    path.keys.resize(Tokens().size() / hash_block_size);
    keys.ExtendBy(Begin(), Tokens(), hash_block_size, path.keys);
    auto at = path.keys.begin();
    for (const ContentKey name : content.contents) {
      if (name == kUnnamed) continue;
      at = std::find(at, path.keys.end(), name);
      if (at == path.keys.end()) {
        path.keys.clear();
        path.ends.clear();
        return;
      }
      path.ends.push_back(static_cast<uint32_t>(at - path.keys.begin()));
    }
  }
};

}  // namespace

ContentScope ScopeOf(const BlockStored& event) {
  ContentScope scope = {.lora_name = {}, .cache_salt = CacheSaltOf(event)};
  if (event.lora_name) scope.lora_name = *event.lora_name;
  if (scope.cache_salt.empty()) scope.cache_salt = ReadBlockContent(event, 0, true).salt;
  return scope;
}

void ReadStorePath(const BlockStored& event, const SpanStart& start, const StoreContent& content,
                   int64_t hash_block_size, int64_t lookahead, const ContentKeys& keys,
                   StorePath& path) {
  const auto block = static_cast<size_t>(event.block_size);
  const size_t tokens = event.token_ids ? event.token_ids->size() : 0;
  const bool fits = content.dense ? tokens == event.block_hashes.size() * block
                                  : tokens > 0 && tokens % block == 0;
  const Reader reader = {.event = event,
                         .start = start,
                         .content = content,
                         .keys = keys,
                         .hash_block_size = static_cast<size_t>(hash_block_size),
                         .block = block,
                         .readable = fits && lookahead == 0 && event.tokens_per_position == 1};
  path.keys.clear();
  path.ends.clear();
  path.whole = true;
  if (content.dense) {
    reader.ReadDense(path);
  } else {
    reader.ReadSparse(path);
  }
}

}  // namespace kvcast::router
