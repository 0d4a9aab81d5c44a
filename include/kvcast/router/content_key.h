// Content keys: 64-bit names that the router computes for prompt prefixes.
//
// A key names a whole prefix: its tokens, LoRA name, salt, and multimodal items at their positions.
// A key does not depend on block sizes or on the hash scheme of an engine. The keys of one prompt
// therefore serve every engine, group and tier.
//
// A key is the value of a polynomial over the field of integers modulo p = 2^64 - 59, at a secret
// point r: key(prefix + token) = key(prefix) * r + token. The key of a prefix is therefore
// sufficient to compute the key of any extension. The key of a stored block is sufficient to name
// the blocks that are stored after it. Two different prefixes of n tokens have equal keys with a
// probability of at most n / p.
//
// Each process has its own random secret. A sender can therefore not choose prefixes that collide.
// Keys of two processes are unrelated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kvcast/core/ids.h"

namespace kvcast {

using ContentKey = uint64_t;
// Not the key of any prefix.
inline constexpr ContentKey kUnnamed = 0;

// The maximum number of tokens after a block that an engine's hash of the block may cover.
inline constexpr int64_t kMaxLookahead = 8;

// The scope of a prompt. Equal tokens in two scopes have different keys. The views are borrowed.
struct ContentScope {
  std::string_view lora_name;   // empty: none
  std::string_view cache_salt;  // empty: none
};

// Computes keys for one secret. Immutable and thread-safe.
class ContentKeys {
 public:
  // Every value is a valid secret. Equal secrets give equal keys.
  explicit ContentKeys(uint64_t secret);
  // The instance with the secret of this process.
  static const ContentKeys& OfProcess();

  // The key of the empty prefix.
  ContentKey Root(const ContentScope& scope) const;
  // The key of the prefix followed by one token, or by several tokens. Three tokens cost about one
  // nanosecond.
  ContentKey Extend(ContentKey prefix, TokenId token) const;
  ContentKey Extend(ContentKey prefix, std::span<const TokenId> tokens) const;
  // The inverse of Extend: `key` names a prefix that ends with `tokens`; the result names this
  // prefix without `tokens`.
  ContentKey Retract(ContentKey key, std::span<const TokenId> tokens) const;
  // Sets keys[i] to the key of the prefix followed by the first (i + 1) * step tokens. REQUIRES:
  // step > 0, tokens.size() >= keys.size() * step.
  void ExtendBy(ContentKey prefix, std::span<const TokenId> tokens, size_t step,
                std::span<ContentKey> keys) const;
  // The key of the prefix with a multimodal item that begins before the next token.
  ContentKey AddItem(ContentKey prefix, std::string_view identifier) const;
  // The key of the prefix whose next block has embeddings with this digest instead of tokens.
  ContentKey AddEmbeddings(ContentKey prefix, std::span<const uint8_t> digest) const;

  // The name of a block with lookahead. `prefix` is the key of the prefix that includes the
  // lookahead tokens. The block ends `lookahead` tokens before the end of this prefix, and the hash
  // of the block covers these tokens too. With lookahead 0 the result is `prefix`. Blocks of
  // different lookahead have different names, except by chance.
  ContentKey Mark(ContentKey prefix, int64_t lookahead) const;
  // The inverse of Mark. REQUIRES: 0 <= lookahead <= kMaxLookahead.
  ContentKey Unmark(ContentKey name, int64_t lookahead) const;

  // The implementation of ExtendBy on this CPU: "avx2" or "portable".
  static std::string_view Code();
  // As ExtendBy, with portable code. For comparisons in tests.
  void ExtendByPortably(ContentKey prefix, std::span<const TokenId> tokens, size_t step,
                        std::span<ContentKey> keys) const;

  // Constants of the vector code, which sums kCell tokens in one step. `low` and `high` are the
  // 32-bit halves of the powers r^15 ... r^0. `of_cell` is r^16.
  static constexpr size_t kCell = 16;
  struct alignas(32) LanePowers {
    std::array<uint64_t, kCell> low{};
    std::array<uint64_t, kCell> high{};
    uint64_t of_cell = 0;
  };

 private:
  static constexpr size_t kPowers = kCell + 1;

  ContentKey AddText(ContentKey prefix, std::string_view text, uint64_t kind) const;

  uint64_t secret_ = 0;
  uint64_t root_ = 0;
  // powers_[i] = r^i.
  std::array<uint64_t, kPowers> powers_{};
  LanePowers lanes_;
  // wide_, narrow_: points for the two halves of a token id that does not fit 32 bits.
  uint64_t wide_ = 0;
  uint64_t narrow_ = 0;
  std::array<uint64_t, 4> text_points_{};  // by kind
  uint64_t unpoint_ = 0;                   // inverses of r, wide_ and narrow_
  uint64_t unwide_ = 0;
  uint64_t unnarrow_ = 0;
  uint64_t mark_ = 0;
  uint64_t unmark_ = 0;  // inverse of mark_
};

}  // namespace kvcast
