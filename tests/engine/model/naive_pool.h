// Reference implementation of BlockPool (test oracle) with plain lists. Each rule has the simplest
// code.
//
// The code follows vLLM's caching rules and shares no code with src/engine. Each prefix has a
// number. The pool finds the number by the tokens of the prefix, not by a hash. Digests are made
// only for the events and for the comparison of the cached keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast::naive {

using Block = uint32_t;
using Blocks = std::vector<Block>;
// Number of a prefix. Its length is a multiple of hash_block_size. kRoot: the empty prefix.
using Prefix = int32_t;
inline constexpr Prefix kRoot = -1;

// A prefix in the cache of one group.
struct Key {
  Prefix prefix = kRoot;
  size_t group = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// Maps prefixes to numbers and digests.
class PrefixNames {
 public:
  PrefixNames(BlockHasher hasher, int64_t size)
      : hasher_(std::move(hasher)), hash_block_size_(size) {}

  // Numbers of the request's prefixes of 1, 2, ... times hash_block_size tokens. Prefixes with
  // different extra keys have different numbers.
  const std::vector<Prefix>& ChainOf(const CacheRequest& request);
  const Digest& digest(Prefix prefix) const { return digests_[static_cast<size_t>(prefix)]; }
  int64_t hash_block_size() const { return hash_block_size_; }

  // Extra keys at a position: LoRA name, and the salt at position 0.
  static ExtraKeys KeysAt(const CacheRequest& request, int64_t begin);

 private:
  using Name = std::tuple<Prefix, std::vector<TokenId>, std::string, std::string>;

  BlockHasher hasher_;
  int64_t hash_block_size_;
  std::map<Name, Prefix> names_;
  std::vector<Digest> digests_;
  std::map<std::string, std::vector<Prefix>> chains_;  // by request id; a request only grows
};

class Pool {
 public:
  Pool(const CacheConfig& config, PrefixNames& names, const EventOptions& options);

  size_t num_free() const { return early_.size() + free_.size(); }
  int64_t refs(Block block) const { return refs_[block]; }
  bool IsFree(Block block) const { return block != 0 && refs_[block] == 0; }
  // The first key of a block, or nullptr.
  const Key* FirstKey(Block block) const;
  // The length of the first key's prefix, in tokens; 0: no key.
  int64_t FirstKeyTokens(Block block) const;
  // Returns the block that was cached first under the key, or 0.
  Block Find(const Key& key) const;

  Block Take();
  void Touch(Block block);
  void Adopt(Block block);  // a block of a hit
  // `early`: cached blocks that were never adopted are taken before all other cached blocks.
  void Free(const Blocks& blocks, bool early = false);
  void Evict(Block block) { DropKeys(block); }
  bool Reset();
  // Moves the keys of `from` to `to`, which has no keys. `to` becomes the last holder of each key.
  void MoveKeys(Block from, Block to);

  // Caches the blocks [begin, end) of a table for which `keep` is true.
  void CacheFull(const CacheRequest& request, size_t group, const Blocks& table, int64_t begin,
                 int64_t end, const std::vector<bool>& keep);
  // Caches the block under the prefix of `tokens` tokens, which ends inside the block, at its end,
  // or after it. False: the block is the null block.
  bool CachePartial(const CacheRequest& request, size_t group, Block block, int64_t tokens);
  // Announces the whole blocks of a hit of `tokens` tokens. Does nothing with
  // EventOptions::announce_once.
  void Report(const CacheRequest& request, size_t group, const Blocks& hit, int64_t tokens);

  std::vector<Event> TakeEvents() { return std::exchange(events_, {}); }
  // Number of copies of every key of a group.
  std::map<Prefix, int64_t> CachedPrefixes(size_t group) const;

 private:
  // A key of a block, and the length of its prefix in tokens.
  struct Covered {
    Key key;
    int64_t tokens = 0;
  };

  // An announced block: the prefix that ends with the block, and the position of the first token.
  struct Named {
    Prefix prefix = kRoot;
    int64_t begin = 0;
  };

  // True: the key was not cached before.
  bool Insert(const Key& key, Block block, int64_t tokens);
  void DropKeys(Block block);
  // Announces the blocks of a span of tokens. Sends one event for the whole span, or, with
  // EventOptions::exact_spans, one event for each run of adjacent blocks.
  void Announce(const CacheRequest& request, size_t group, int64_t block_size, int64_t begin,
                int64_t end, const std::vector<Named>& blocks);
  // Sends one event.
  void SendSpan(const CacheRequest& request, size_t group, int64_t block_size, int64_t begin,
                int64_t end, const std::vector<Named>& blocks);
  BlockHash HashOf(Prefix prefix) const;
  void Send(Event event);

  std::vector<GroupSpec> groups_;
  PrefixNames& names_;
  EventOptions options_;
  bool scratch_first_;  // free blocks without keys go to the head
  // Free blocks are taken from early_ first. This list has the blocks that are not cached, then the
  // blocks that were freed early.
  std::list<Block> early_;
  std::list<Block> free_;
  std::vector<bool> adopted_;
  std::vector<int64_t> refs_;
  std::vector<std::vector<Covered>> keys_;  // of each block, in order of insertion
  std::map<Key, Blocks> holders_;           // of each key, in order of insertion
  std::vector<Event> events_;
};

inline int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t FloorTo(int64_t value, int64_t step) { return value / step * step; }

bool IsFull(const GroupSpec& spec);
bool IsWindow(const GroupSpec& spec);
// True if the kind of the group takes part in prefix caching. prefix_cacheable is not read.
bool IsPrefixCached(const GroupSpec& spec);

}  // namespace kvcast::naive
