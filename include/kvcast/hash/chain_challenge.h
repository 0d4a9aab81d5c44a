// The prompt of a challenge. A router sends a nonce to an engine, and the engine returns store
// events of prompts that are made from this nonce. These stores show the hash scheme of the engine,
// although the engine's own stores may carry no tokens.
//
// The tokens are digests of the nonce. A client therefore cannot choose them, and cannot use
// challenges to learn the hashes of guessed prompts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/core/ids.h"

namespace kvcast {

// The first `count` tokens of the prompt; each is below 2^16. Token 16 * i + j is the big-endian
// number in the bytes 2j and 2j + 1 of SHA-256("kvcast challenge", nonce, i), with both numbers as
// 8 bytes, big-endian.
std::vector<TokenId> ChallengeTokens(uint64_t nonce, size_t count);
// The cache salt, and the identifier of the multimodal item: "challenge-" and the nonce as 16 hex
// digits.
std::string ChallengeText(uint64_t nonce);

}  // namespace kvcast
