// BlockTemplate: preimages of blocks whose extra keys are the same, which is every block of a plain
// or LoRA prompt. The keys are serialised once; a block costs its parent, its tokens and the tokens
// of its lookahead.
//
// Same bytes as WriteBlockPreimage, which is the definition; this is the hot path.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/hash/block_hash.h"
#include "src/hash/byte_buffer.h"
#include "src/hash/preimage.h"

namespace kvcast::internal {

class BlockTemplate {
 public:
  explicit BlockTemplate(Serialisation form) : form_(form) { SetKeys({}, {}); }

  // The extra keys of the blocks to come, in the form of the chain. May allocate.
  void SetKeys(const ExtraKeys& keys, const ChainForm& form);

  // Whether blocks of this many tokens can be written: not where a pickle would be cut into
  // several frames, nor without tokens, where the numbering of its objects differs.
  bool Fits(size_t tokens) const;

  // The preimage of a block, written over `out`. REQUIRES: Fits(tokens.size()); `lookahead` has the
  // form's number of tokens.
  std::span<const uint8_t> Write(const Digest& parent, std::span<const TokenId> tokens,
                                 std::span<const TokenId> lookahead, ByteBuffer& out) const;

 private:
  uint8_t* PutPickle(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                     std::span<const TokenId> lookahead) const;
  uint8_t* PutCbor(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                   std::span<const TokenId> lookahead) const;
  uint8_t* PutTail(uint8_t* at) const;

  Serialisation form_;
  ByteBuffer tail_;  // everything after the tokens, up to those of the lookahead
  ByteBuffer end_;   // everything after those of the lookahead; empty without lookahead
  size_t lookahead_ = 0;
};

}  // namespace kvcast::internal
