// SPDX-License-Identifier: Apache-2.0
#include "kvcast/hash/chain_challenge.h"

#include <string_view>

#include "src/hash/sha256.h"

namespace kvcast {
namespace {

constexpr std::string_view kDomain = "kvcast challenge";

void Append(uint64_t value, std::vector<uint8_t>& bytes) {
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<uint8_t>(value >> shift));
}

}  // namespace

std::vector<TokenId> ChallengeTokens(uint64_t nonce, size_t count) {
  std::vector<TokenId> tokens;
  tokens.reserve(count);
  for (uint64_t i = 0; tokens.size() < count; ++i) {
    std::vector<uint8_t> input(kDomain.begin(), kDomain.end());
    Append(nonce, input);
    Append(i, input);
    const Digest digest = internal::Sha256Once(input);
    const auto bytes = digest.bytes();
    for (size_t j = 0; j + 1 < bytes.size() && tokens.size() < count; j += 2) {
      tokens.push_back(static_cast<TokenId>(bytes[j] << 8 | bytes[j + 1]));
    }
  }
  return tokens;
}

std::string ChallengeText(uint64_t nonce) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "challenge-";
  for (int shift = 60; shift >= 0; shift -= 4) text += kHex[nonce >> shift & 15];
  return text;
}

}  // namespace kvcast
