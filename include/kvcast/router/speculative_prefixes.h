// SpeculativePrefixes: the prefixes that were routed to a worker recently and are not in its events
// yet.
//
// There is a delay between the routing of a prompt and the engine's BlockStored. A second prompt
// with the same prefix should go to the same worker during this delay. The entries are guesses:
// they expire, their number is bounded, and PrefixIndex never includes them in its answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/ids.h"

namespace kvcast {

struct SpeculativeConfig {
  int64_t lifetime_ms = 2000;  // an entry without a confirming event expires after this time
  size_t entries_max = 65536;  // prefixes of all workers; the oldest entries are dropped first
};

// The name of a prefix: its content key (content_key.h), or PrefixNameOf(the engine's hash).
using PrefixName = uint64_t;
// The value of an integer hash, or a seeded 64-bit hash of the bytes of a byte-string hash.
PrefixName PrefixNameOf(const BlockHash& hash);

// Thread-compatible. All times are milliseconds of the caller's clock, which must not go back.
class SpeculativePrefixes {
 public:
  explicit SpeculativePrefixes(const SpeculativeConfig& config = {});
  ~SpeculativePrefixes();

  // Records that a prompt with these prefixes, from the shortest to the longest, was routed to
  // `worker`.
  void Routed(WorkerId worker, std::span<const PrefixName> prefixes, int64_t now_ms);
  // True: a prefix is expected on the worker.
  bool Expects(WorkerId worker) const;
  // Removes the entries with these names, because the worker has stored them on the GPU. From then
  // on, the exact index contains these blocks.
  void Confirm(WorkerId worker, std::span<const PrefixName> stored);
  // Removes all entries of a worker that restarted or left.
  void Forget(WorkerId worker);

  struct Expected {
    WorkerId worker;
    size_t prefixes = 0;  // position of the longest expected prefix, plus 1
  };
  // Returns the workers on which a prefix of the list is expected, in any order. A name stands for
  // its whole prefix; shorter prefixes may already be confirmed. Time: one table lookup per prefix.
  std::vector<Expected> Match(std::span<const PrefixName> prefixes, int64_t now_ms);

  size_t entries() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
