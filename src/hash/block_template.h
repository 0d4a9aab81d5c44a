// BlockTemplate: preimages of blocks whose extra keys are the same, which is every block of a plain
// or LoRA prompt. The keys are serialised once; a block costs its parent and its tokens.
//
// Same bytes as WriteBlockPreimage, which is the definition; this is the hot path.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/block_hash.h"
#include "src/hash/byte_buffer.h"
#include "src/hash/preimage.h"

namespace kvcast::internal {

class BlockTemplate {
 public:
  explicit BlockTemplate(Serialisation form) : form_(form) { SetKeys({}); }

  // The extra keys of the blocks to come. May allocate.
  void SetKeys(const ExtraKeys& keys);

  // Whether blocks of this many tokens can be written: not where a pickle would be cut into
  // several frames, nor without tokens, where the numbering of its objects differs.
  bool Fits(size_t tokens) const;

  // The preimage of a block, written over `out`. REQUIRES: Fits(tokens.size()).
  std::span<const uint8_t> Write(const Digest& parent, std::span<const TokenId> tokens,
                                 ByteBuffer& out) const;

 private:
  uint8_t* PutPickle(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens) const;
  uint8_t* PutCbor(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens) const;
  uint8_t* PutTail(uint8_t* at) const;

  Serialisation form_;
  ByteBuffer tail_;  // everything after the tokens
};

}  // namespace kvcast::internal
