// BlockTemplate: writes preimages of blocks that have the same extra keys, as all blocks of a plain
// or LoRA prompt have. The keys are serialised once. A block then costs its parent, its tokens and
// the tokens of its lookahead.
//
// The bytes equal those of WriteBlockPreimage, which is the definition. This class is the hot path.
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

  // Sets the extra keys of the next blocks, in the form of the chain. May allocate.
  void SetKeys(const ExtraKeys& keys, const ChainForm& form);

  // Whether blocks with this number of tokens can be written. False if a pickle would be split into
  // several frames. Also false for 0 tokens, because the pickle then numbers its objects
  // differently.
  bool Fits(size_t tokens) const;

  // Writes the preimage of a block over `out`. REQUIRES: Fits(tokens.size()); `lookahead` has as
  // many tokens as the form has.
  std::span<const uint8_t> Write(const Digest& parent, std::span<const TokenId> tokens,
                                 std::span<const TokenId> lookahead, ByteBuffer& out) const;

 private:
  uint8_t* PutPickle(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                     std::span<const TokenId> lookahead) const;
  uint8_t* PutCbor(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                   std::span<const TokenId> lookahead) const;
  uint8_t* PutTail(uint8_t* at) const;

  Serialisation form_;
  ByteBuffer tail_;  // all bytes between the tokens and the tokens of the lookahead
  ByteBuffer end_;   // all bytes after the tokens of the lookahead; empty without lookahead
  size_t lookahead_ = 0;
};

}  // namespace kvcast::internal
