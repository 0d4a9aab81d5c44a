// Store content: the content keys of the blocks that one store announces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/core/event.h"
#include "kvcast/core/extra_key.h"
#include "kvcast/router/content_key.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::router {

// A multimodal item that begins in a block.
struct ItemStart {
  int64_t position = 0;  // tokens from the block's start
  std::string_view identifier;
};

// The content of one block in addition to its tokens, read from its extra keys.
struct BlockContent {
  std::string_view salt;
  std::vector<ItemStart> items;
  std::string_view embeddings;  // digest; empty: none
  // True if some of the content cannot be named: keys of an unknown form, or items that the engine
  // may have hashed incompletely.
  bool hidden = false;
};

// Reads the extra keys of block `index` of the event. The order in vLLM: LoRA name; (identifier,
// offset from the block's start) of each item; salt (only in the first block of the prompt); digest
// of embeddings. An item is listed if it touches the block, or the tokens behind the block that the
// block's hash covers.
BlockContent ReadBlockContent(const BlockStored& event, size_t index, bool first_block);

// True: a block of the store has a digest of embeddings.
bool HasEmbeddings(const BlockStored& event);

// Number of tokens behind a block that the store's hashes cover. SGLang's pairs of tokens cover one
// token.
int64_t LookaheadOf(const BlockStored& event);

// True if the store has tokens, and its tokens, hashes, block size, offset, extra keys and
// lookahead fit together.
bool HasUsableTokens(const BlockStored& event);

// The start of a store's token span.
struct SpanStart {
  bool at_root = false;
  ContentKey parent = kUnnamed;  // content of the block before the span; kUnnamed: unknown
  uint32_t end = 0;              // tokens before the span; 0: unknown, except at the root
  bool proven = true;            // see StoreContent::proven
};

struct StoreContent {
  // By hash of the store; kUnnamed if the content is unknown.
  std::vector<ContentKey> contents;
  // Content of the block before the span, if a block of the span determines it.
  ContentKey parent = kUnnamed;
  UnnamedReason reason = UnnamedReason::kNoTokens;  // why contents are unknown
  bool dense = false;                               // every block of the span has a hash
  bool bad = false;                                 // the store contradicts itself
  bool rule_refuted = false;                        // the store contradicts the sparse rule
  // True: the contents are the keys of prefixes, because they were computed from the root. False:
  // the content of an earlier block was computed backwards, from the content of a later block. The
  // source claims that the later block ends with the tokens of a store. If this claim is wrong, the
  // contents need not be keys of prefixes, but an extension of such a content may be the key of a
  // prefix.
  bool proven = true;
};

// Reads the stores of one source. Thread-compatible.
class StoreReader {
 public:
  explicit StoreReader(const ContentKeys& keys) : keys_(keys) {}

  // `known(i)`: returns the content that earlier stores of the source gave to hash i. The reader
  // calls it if the store itself does not determine the content or the block. `rule`, with the
  // group's spec: see SparseRule; nullptr: unknown.
  using Known = std::function<ContentKey(size_t)>;
  void Read(const BlockStored& event, const SpanStart& start, const Known& known,
            const SparseRule* rule, const GroupSpec* spec, StoreContent& content);

 private:
  // Returns the content before the span, computed from a block of the span whose content is known.
  ContentKey ParentFromBehind(const BlockStored& event, const Known& known) const;
  // Tokens, counted from the start of a block. Tokens behind the end of the block are lookahead.
  struct TokenRange {
    int64_t begin;
    int64_t end;
  };
  // Returns the content of `state` followed by the tokens of the range and the items among them.
  // nullopt: the items are out of order.
  template <typename TokenAt>
  std::optional<ContentKey> ExtendByBlock(ContentKey state, TokenRange range,
                                          std::span<const ItemStart> items, TokenAt&& token_at);
  void ReadBlocks(const BlockStored& event, const SpanStart& start,
                  std::span<const int64_t> hash_of, StoreContent& content);
  void PlaceByContent(const Known& known);
  bool Place(const BlockStored& event, const SpanStart& start, const Known& known,
             const SparseRule* rule, const GroupSpec* spec, StoreContent& content);

  const ContentKeys& keys_;
  std::vector<int64_t> hash_of_;   // by block; kNoBlock: none
  std::vector<int64_t> block_of_;  // by hash
  std::vector<ContentKey> ends_;   // by block
  std::vector<TokenId> window_;
  absl::flat_hash_map<ContentKey, int64_t> block_of_content_;  // of the blocks of ends_
};

}  // namespace kvcast::router
