// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/hash_source.h"

namespace kvcast::tools {

Result<HashSource> HashSource::Create(const ScenarioConfig& config) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(config.none_hash.data());
  auto hasher = BlockHasher::FromNoneHash(config.algorithm, {bytes, config.none_hash.size()});
  if (!hasher.ok()) return hasher.status();
  return HashSource(config, std::move(hasher).value());
}

std::vector<BlockHash> HashSource::Chain(std::span<const TokenId> tokens,
                                         const HashInputs& inputs) {
  std::vector<Digest> digests;
  hasher_.ExtendChain(tokens, hash_block_size_, inputs, digests, chain_form_);
  std::vector<BlockHash> chain;
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, hash_form_));
  return chain;
}

}  // namespace kvcast::tools
