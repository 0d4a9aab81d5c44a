// PrefixRegistry: maps a digest to the tokens of its prefix. A token is given as the code of the
// prefix that ends with it (RequestWork::prefix).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::content {

class PrefixRegistry {
 public:
  // `chain` has one digest per `hash_block_size` tokens, `prefix` has one code per token.
  void Add(std::span<const Digest> chain, std::span<const uint64_t> prefix,
           int64_t hash_block_size) {
    // If a digest is known, its parents are known too.
    for (size_t i = chain.size(); i-- > 0 && !units_.contains(chain[i].low64());) {
      Unit& added = units_[chain[i].low64()];
      if (i > 0) added.parent = chain[i - 1].low64();
      const auto tokens = static_cast<size_t>(hash_block_size);
      const auto codes = prefix.subspan(i * tokens, tokens);
      added.codes.assign(codes.begin(), codes.end());
    }
  }

  // Returns the codes of the last `tokens` tokens of the prefix that the digest names. Returns
  // fewer if the prefix is shorter, and none if the digest is unknown.
  std::vector<uint64_t> Last(const Digest& digest, int64_t tokens) const {
    std::vector<uint64_t> backwards;
    for (auto unit = units_.find(digest.low64()); unit != units_.end();
         unit = units_.find(unit->second.parent)) {
      for (auto code = unit->second.codes.rbegin(); code != unit->second.codes.rend(); ++code) {
        if (tokens-- > 0) backwards.push_back(*code);
      }
      if (tokens <= 0) break;
    }
    std::reverse(backwards.begin(), backwards.end());
    return backwards;
  }

 private:
  struct Unit {
    uint64_t parent = 0;
    std::vector<uint64_t> codes;
  };
  std::unordered_map<uint64_t, Unit> units_;
};

}  // namespace kvcast::content
