// A block pool of plain lists: every rule in the most obvious way, for comparison with BlockPool.
//
// Written from the rules, not from src/engine, and shares no code with it. A prefix is named by a
// number that is looked up by its tokens, not by its hash; digests are only made for the events.
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
// A prefix in hash units; kRoot: the empty one.
using Prefix = int32_t;
inline constexpr Prefix kRoot = -1;

// A prefix as one group caches it.
struct Key {
  Prefix prefix = kRoot;
  size_t group = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// Numbers of prefixes, and their digests.
class PrefixNames {
 public:
  PrefixNames(BlockHasher hasher, int64_t unit) : hasher_(std::move(hasher)), unit_(unit) {}

  // Names of all complete units of a request, and its extra keys per position.
  const std::vector<Prefix>& ChainOf(const CacheRequest& request);
  const Digest& digest(Prefix prefix) const { return digests_[static_cast<size_t>(prefix)]; }
  int64_t unit() const { return unit_; }

  // LoRA name, and the salt at position 0.
  static ExtraKeys KeysAt(const CacheRequest& request, int64_t begin);

 private:
  using Name = std::tuple<Prefix, std::vector<TokenId>, std::string, std::string>;

  BlockHasher hasher_;
  int64_t unit_;
  std::map<Name, Prefix> names_;
  std::vector<Digest> digests_;
  std::map<std::string, std::vector<Prefix>> chains_;  // by request id; requests only grow
};

class Pool {
 public:
  Pool(const CacheConfig& config, PrefixNames& names, const EventOptions& options);

  size_t num_free() const { return free_.size(); }
  int64_t refs(Block block) const { return refs_[block]; }
  bool IsFree(Block block) const { return block != 0 && refs_[block] == 0; }
  // The first key of a block, or nullptr.
  const Key* FirstKey(Block block) const;
  // The block cached first under a key, or 0.
  Block Find(const Key& key) const;

  Block Take();
  void Touch(Block block);
  void Free(const Blocks& blocks);
  void Evict(Block block) { DropKeys(block); }
  bool Reset();
  // `to` takes over the keys of `from`, behind other holders.
  void MoveKeys(Block from, Block to);

  // Blocks [begin, end) of a table, those for which `keep` is true.
  void CacheFull(const CacheRequest& request, size_t group, const Blocks& table, int64_t begin,
                 int64_t end, const std::vector<bool>& keep);
  // True: the block is cached under the prefix of `tokens` tokens, which ends inside it.
  bool CachePartial(const CacheRequest& request, size_t group, Block block, int64_t tokens);
  // Announces the leading blocks of a hit, as far as they are whole.
  void Report(const CacheRequest& request, size_t group, const Blocks& hit);

  std::vector<Event> TakeEvents() { return std::exchange(events_, {}); }
  // Copies of every key of a group.
  std::map<Prefix, int64_t> CachedPrefixes(size_t group) const;

 private:
  struct Covered {
    Key key;
    int64_t tokens = 0;
  };

  // A block that is announced: the prefix that it ends, and its first token.
  struct Named {
    Prefix prefix = kRoot;
    int64_t begin = 0;
  };

  // True: the key was not cached before.
  bool Insert(const Key& key, Block block, int64_t tokens);
  void DropKeys(Block block);
  // A span of tokens with the blocks named in it.
  void Announce(const CacheRequest& request, size_t group, int64_t block_size, int64_t begin,
                int64_t end, const std::vector<Named>& blocks);
  void SendSpan(const CacheRequest& request, size_t group, int64_t block_size, int64_t begin,
                int64_t end, const std::vector<Named>& blocks);
  BlockHash HashOf(Prefix prefix) const;
  void Send(Event event);

  std::vector<GroupSpec> groups_;
  PrefixNames& names_;
  EventOptions options_;
  bool scratch_first_;  // free blocks without keys go to the head
  std::list<Block> free_;
  std::vector<int64_t> refs_;
  std::vector<std::vector<Covered>> keys_;  // of each block, in order of insertion
  std::map<Key, Blocks> holders_;           // of each key, in order of insertion
  std::vector<Event> events_;
};

inline int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t FloorTo(int64_t value, int64_t step) { return value / step * step; }

bool IsFull(const GroupSpec& spec);
bool IsWindow(const GroupSpec& spec);
bool IsPrefixCached(const GroupSpec& spec);  // in prefix caching

}  // namespace kvcast::naive
