// SPDX-License-Identifier: Apache-2.0
#include "kvcast/hash/chain_challenge.h"

#include <string_view>
#include <utility>

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

std::vector<HashInputs> ChallengeInputs(uint64_t nonce, int64_t hash_block_size) {
  const std::string text = ChallengeText(nonce);
  std::vector<HashInputs> inputs(4);
  inputs[1].cache_salt = text;
  inputs[2].mm_items = {{.identifier = text, .offset = 0, .length = hash_block_size}};
  inputs[3].lora_name = text;
  return inputs;
}

BlockStored ChallengeStore(uint64_t nonce, int64_t block_size, const HashInputs& inputs,
                           const ChallengeScheme& scheme, BlockHasher& hasher) {
  const int64_t lookahead = scheme.form.lookahead;
  std::vector<TokenId> tokens = ChallengeTokens(nonce, static_cast<size_t>(block_size + lookahead));
  std::vector<Digest> chain;
  hasher.ExtendChain(tokens, scheme.hash_block_size, inputs, chain, scheme.form);
  const auto end = tokens.begin() + block_size;
  BlockStored store;
  store.block_hashes = {
      ToEventHash(BlockDigest(chain, 0, block_size / scheme.hash_block_size), scheme.event_form)};
  if (lookahead > 0) {
    store.lookahead = LookaheadTokens{.width = lookahead, .token_ids = {end, tokens.end()}};
  }
  store.token_ids.emplace(tokens.begin(), end);
  store.block_size = block_size;
  store.medium = kMediumGpu;
  store.group_idx = 0;
  if (!inputs.lora_name.empty()) store.lora_name = inputs.lora_name;
  // Events carry the bare form of the keys even if the hash covers the tagged form.
  ExtraKeys keys = ExtraKeysFor(inputs, 0, block_size, {.lookahead = lookahead});
  store.extra_keys.emplace().emplace_back();
  if (!keys.empty()) store.extra_keys->front() = std::move(keys);
  return store;
}

}  // namespace kvcast
