// Content keys: the router's own 64-bit names of prompt prefixes.
//
// A key names a whole prefix: its tokens, LoRA name, salt and multimodal items at their positions.
// It does not depend on block sizes, and not on how an engine hashes. The keys of one prompt
// therefore serve every engine, group and tier.
//
// A key is the value of a polynomial over the field of integers modulo p = 2^64 - 59, at a secret
// point r: key(prefix + token) = key(prefix) * r + token. The key of a prefix is all that is needed
// to name what follows it, so that a stored block's key names the blocks stored behind it. Two
// different prefixes of n tokens have one key with a probability of at most n / p. The secret is
// fresh in each process; it keeps a sender from choosing prefixes that collide, and keys of two
// processes have nothing to do with each other.
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
// No prefix has it.
inline constexpr ContentKey kUnnamed = 0;

// Tokens behind a block that an engine's hash of the block may cover.
inline constexpr int64_t kMaxLookahead = 8;

// The scope of a prompt: equal tokens in two scopes are two contents. Borrows its texts.
struct ContentScope {
  std::string_view lora_name;   // empty: none
  std::string_view cache_salt;  // empty: none
};

// Immutable and thread-safe.
class ContentKeys {
 public:
  // Any value is a good secret; equal ones give equal keys.
  explicit ContentKeys(uint64_t secret);
  // Those of this process.
  static const ContentKeys& OfProcess();

  // The empty prefix.
  ContentKey Root(const ContentScope& scope) const;
  // The prefix and one more token, or more of them. Costs about a nanosecond for three tokens.
  ContentKey Extend(ContentKey prefix, TokenId token) const;
  ContentKey Extend(ContentKey prefix, std::span<const TokenId> tokens) const;
  // Undoes Extend: the prefix that `key` names without its last tokens.
  ContentKey Retract(ContentKey key, std::span<const TokenId> tokens) const;
  // keys[i] names the prefix and the first (i + 1) * step tokens.
  // REQUIRES: step > 0, tokens.size() >= keys.size() * step.
  void ExtendBy(ContentKey prefix, std::span<const TokenId> tokens, size_t step,
                std::span<ContentKey> keys) const;
  // The prefix, before whose next token a multimodal item begins.
  ContentKey AddItem(ContentKey prefix, std::string_view identifier) const;
  // The prefix, whose next block has embeddings of this digest in place of tokens.
  ContentKey AddEmbeddings(ContentKey prefix, std::span<const uint8_t> digest) const;

  // The name of a block that ends `lookahead` tokens before `prefix` does, and whose hash covers
  // those tokens too. Without lookahead the prefix itself. Blocks of different lookahead never
  // share a name.
  ContentKey Mark(ContentKey prefix, int64_t lookahead) const;
  // Undoes Mark. REQUIRES: 0 <= lookahead <= kMaxLookahead.
  ContentKey Unmark(ContentKey name, int64_t lookahead) const;

  // Which code computes ExtendBy here: "avx2" or "portable".
  static std::string_view Code();
  // The same by portable code, to compare with.
  void ExtendByPortably(ContentKey prefix, std::span<const TokenId> tokens, size_t step,
                        std::span<ContentKey> keys) const;

  // Of the vector code: tokens that are summed up at once, and powers of r for them, r^15 ... r^0
  // in halves of 32 bits; of_cell is r^16.
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
  uint64_t wide_ = 0;  // points for the halves of token ids that do not fit 32 bits
  uint64_t narrow_ = 0;
  std::array<uint64_t, 4> text_points_{};  // by kind
  uint64_t unpoint_ = 0;                   // inverses of r and of the two before
  uint64_t unwide_ = 0;
  uint64_t unnarrow_ = 0;
  uint64_t mark_ = 0;
  uint64_t unmark_ = 0;  // its inverse
};

}  // namespace kvcast
