// The bytes that are digested: the seed text of NONE_HASH, and the tuple (parent, tokens, extra).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kvcast/hash/block_hash.h"
#include "src/hash/byte_buffer.h"

namespace kvcast::internal {

enum class Serialisation : uint8_t { kPickle, kCbor };

// Replaces the content of `out`.
void WriteSeedPreimage(Serialisation form, std::string_view seed, ByteBuffer& out);

// The part of a preimage after the parent and the tokens of a block.
struct BlockExtra {
  const ExtraKeys& keys;
  std::span<const uint32_t> object_tags = {};  // one tag per key
  BlockForm form = {};
};

// Offsets in a preimage.
struct PreimageParts {
  size_t tokens_end = 0;
  // The range of the lookahead tokens. Without lookahead, both offsets are the end of the keys.
  size_t lookahead_begin = 0;
  size_t lookahead_end = 0;
};

// Replaces the content of `out`.
PreimageParts WriteBlockPreimage(Serialisation serialisation, std::span<const uint8_t> parent,
                                 std::span<const TokenId> tokens, const BlockExtra& extra,
                                 ByteBuffer& out);

}  // namespace kvcast::internal
