// The prompts of a challenge. A router sends a nonce to an engine. The engine returns store events
// of prompts that are made from this nonce. These stores show the hash scheme of the engine, even
// if the engine's other stores contain no tokens.
//
// The tokens are digests of the nonce. A client therefore cannot choose them, and cannot use
// challenges to learn the hashes of guessed prompts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast {

// The first `count` tokens of each prompt; each token is below 2^16. Token 16 * i + j, with j from
// 0 to 15, is the big-endian number in the bytes 2j and 2j + 1 of SHA-256("kvcast challenge",
// nonce, i). The input contains the nonce and i as 8 bytes each, big-endian.
std::vector<TokenId> ChallengeTokens(uint64_t nonce, size_t count);
// The text that is used as the cache salt, the identifier of the multimodal item, or the adapter
// name of a prompt: "challenge-", then the nonce as 16 hex digits.
std::string ChallengeText(uint64_t nonce);

// The inputs of the prompts besides the tokens, in the order of an answer: none; a cache salt; a
// multimodal item that covers one hash unit; an adapter. The adapter has no path.
std::vector<HashInputs> ChallengeInputs(uint64_t nonce, int64_t hash_block_size);

// The hash scheme of the stores in an answer, without the algorithm and NONE_HASH.
struct ChallengeScheme {
  int64_t hash_block_size = 0;  // tokens per hash unit
  ChainForm form;
  EventHashForm event_form = EventHashForm::kInt64;
};

// Returns the store that an engine with this scheme publishes for the first `block_size` tokens of
// a prompt with these inputs. The store has one block, of group 0. REQUIRES: block_size is a
// positive multiple of scheme.hash_block_size.
BlockStored ChallengeStore(uint64_t nonce, int64_t block_size, const HashInputs& inputs,
                           const ChallengeScheme& scheme, BlockHasher& hasher);

}  // namespace kvcast
