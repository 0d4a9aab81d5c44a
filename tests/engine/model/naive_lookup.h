// The lookup of a naive pool: one scan per kind, and a loop over the groups until all groups agree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/engine/model/naive_pool.h"

namespace kvcast::naive {

// The lengths that a configuration implies, in tokens.
struct Grid {
  int64_t hash_block_size = 0;  // tokens per hash
  int64_t step = 0;             // scheduler_block_size
  int64_t alignment = 0;        // hits end at multiples of this length
  bool inside_blocks = false;   // hits may end inside a block
  bool to_last_hash = false;    // a group with a draft head searches up to the last hash

  static Grid Of(const CacheConfig& config);
};

// Returns `groups`. If one of several groups with equal spec has the EAGLE flag, all these groups
// get the flag.
std::vector<GroupSpec> WithSharedEagle(std::vector<GroupSpec> groups);

class Lookup {
 public:
  Lookup(const std::vector<GroupSpec>& groups, const Grid& grid, const Pool& pool);

  struct Hit {
    int64_t tokens = 0;
    int64_t longest = 0;  // the longest hit of a single scan
    std::vector<Blocks> tables;
  };
  // `chain`: the prefixes of the prompt, one per hash unit.
  Hit Find(const std::vector<Prefix>& chain, int64_t max_tokens) const;
  // For each group: the prefix, in tokens, that all groups of the same spec can serve without the
  // other groups. 0 for a group outside prefix caching.
  std::vector<int64_t> FindPerGroup(const std::vector<Prefix>& chain, int64_t max_tokens) const;

 private:
  // Groups of equal spec, which one scan looks up.
  struct Set {
    GroupSpec spec;
    std::vector<size_t> members;
  };
  // Result of one scan. tables[i] belongs to members[i].
  struct Scan {
    int64_t tokens = 0;
    std::vector<Blocks> tables;
  };

  Scan ScanOf(const Set& set, const std::vector<Prefix>& chain, int64_t limit, bool drop) const;
  Scan ScanFull(const Set& set, const std::vector<Prefix>& chain, int64_t limit, bool drop) const;
  Scan ScanWindow(const Set& set, const std::vector<Prefix>& chain, int64_t limit, bool drop) const;
  Scan ScanChunked(const Set& set, const std::vector<Prefix>& chain, int64_t limit) const;
  Scan ScanMamba(const Set& set, const std::vector<Prefix>& chain, int64_t limit) const;
  // The members' blocks for the prefix of `tokens` tokens; nullopt if a member has none.
  std::optional<Blocks> InAll(const Set& set, const std::vector<Prefix>& chain,
                              int64_t tokens) const;
  static void Cut(Scan& scan, int64_t tokens, int64_t block_size);
  // The limit of a scan of prefixes of at most `tokens` tokens that drops a block.
  int64_t LimitWithDrop(const Set& set, const std::vector<Prefix>& chain, int64_t tokens,
                        int64_t max_tokens) const;
  Hit FindTogether(const std::vector<Prefix>& chain, int64_t max_tokens) const;

  Grid grid_;
  const Pool& pool_;
  size_t num_groups_;
  std::vector<Set> sets_;  // full attention first
};

}  // namespace kvcast::naive
