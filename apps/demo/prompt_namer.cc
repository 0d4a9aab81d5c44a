// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/prompt_namer.h"

#include <utility>

#include "apps/engine/engine_setup.h"
#include "kvcast/router/prompt_contents.h"

namespace kvcast::tools {

PromptNamer::PromptNamer(const CacheConfig& cache, BlockHasher hasher, EventHashForm form)
    : hash_block_size_(cache.hash_block_size),
      chain_form_(cache.chain_form),
      hasher_(std::move(hasher)),
      form_(form) {}

Result<PromptNamer> PromptNamer::Create(const CacheOptions& options, const CacheConfig& cache) {
  auto hasher = MakeHasher(options.hash_algorithm, options.hash_seed);
  if (!hasher.ok()) return hasher.status();
  const auto form = MakeHashForm(options);
  if (!form.ok()) return form.status();
  return PromptNamer(cache, std::move(hasher).value(), *form);
}

PromptNames PromptNamer::Of(std::span<const TokenId> tokens, bool with_chain) {
  PromptNames names;
  names.contents = std::make_shared<const std::vector<ContentKey>>(PromptContents(
      ContentKeys::OfProcess(), tokens, hash_block_size_, chain_form_.lookahead, HashInputs()));
  if (!with_chain) return names;
  std::vector<Digest> digests;
  hasher_.ExtendChain(tokens, hash_block_size_, HashInputs(), digests, chain_form_);
  std::vector<BlockHash> chain;
  chain.reserve(digests.size());
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, form_));
  names.chain = std::make_shared<const std::vector<BlockHash>>(std::move(chain));
  return names;
}

}  // namespace kvcast::tools
