// BlockTemplate: writes preimages of blocks that have the same extra keys, for example all blocks
// of a plain prompt or of a LoRA prompt. The keys are serialised once. For each block, only its
// parent, its tokens and its lookahead tokens are serialised.
//
// The bytes are equal to the bytes of WriteBlockPreimage, which defines them. This class is faster,
// and most blocks use it.
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

  // True if blocks with this number of tokens can be written. False if the pickle of a block could
  // have several frames. Also false for 0 tokens, because the pickle then numbers its objects
  // differently.
  bool Fits(size_t tokens) const;

  // Writes the preimage of a block over `out`. REQUIRES: Fits(tokens.size()); `lookahead` has
  // form.lookahead tokens, with the form of SetKeys.
  std::span<const uint8_t> Write(const Digest& parent, std::span<const TokenId> tokens,
                                 std::span<const TokenId> lookahead, ByteBuffer& out) const;

 private:
  uint8_t* PutPickle(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                     std::span<const TokenId> lookahead) const;
  uint8_t* PutCbor(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                   std::span<const TokenId> lookahead) const;
  uint8_t* PutTail(uint8_t* at) const;

  Serialisation form_;
  ByteBuffer tail_;  // all bytes after the tokens, up to the lookahead tokens or to the end
  ByteBuffer end_;   // all bytes after the tokens of the lookahead; empty without lookahead
  size_t lookahead_ = 0;
};

}  // namespace kvcast::internal
