// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/prompts.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "apps/simulate/random.h"
#include "src/base/check.h"

namespace kvcast::simulate {
namespace {

// Token ids are random 24-bit numbers, so that two texts are equal only if they stand for the same
// block.
void AppendBlock(uint64_t name, int64_t begin, int64_t end, std::vector<TokenId>& out) {
  for (int64_t k = begin; k < end; ++k) {
    out.push_back(static_cast<TokenId>(Mix(name + static_cast<uint64_t>(k)) >> 40));
  }
}

}  // namespace

Prompts::Prompts(const Slice& slice, int64_t unit, BlockHasher hasher)
    : slice_(slice), unit_(unit), prefixes_(slice.requests.size()) {
  KV_CHECK(slice.block_tokens % unit == 0 || unit % slice.block_tokens == 0);
  // The name of a block stands for the block and all blocks before it. So the name and an offset in
  // the block identify a prefix.
  std::unordered_map<uint64_t, PrefixNumber> numbers;  // by name
  std::vector<TokenId> tokens;
  // Begin with the last request. The prefixes after the whole blocks of a prompt are prefixes of
  // the continuation, and the continuation is a later request.
  for (size_t r = slice.requests.size(); r-- > 0;) {
    const WorkloadRequest& request = slice.requests[r];
    std::vector<PrefixNumber>& prefixes = prefixes_[r];
    const int64_t whole = std::ssize(request.blocks) * slice.block_tokens;
    const int64_t units = request.prompt_tokens / unit;
    for (int64_t u = 0; u < units; ++u) {
      const int64_t end = (u + 1) * unit;
      if (end > whole && request.next != kNoRequest) {
        KV_CHECK(std::cmp_greater(request.next, r));
        prefixes.push_back(prefixes_[static_cast<size_t>(request.next)][static_cast<size_t>(u)]);
        continue;
      }
      const int64_t block = (end - 1) / slice.block_tokens;
      const uint64_t name = end > whole
                                ? Mix(~static_cast<uint64_t>(r), static_cast<uint64_t>(u))
                                : Mix(request.blocks[static_cast<size_t>(block)],
                                      static_cast<uint64_t>(end - block * slice.block_tokens));
      const auto [it, added] =
          numbers.try_emplace(name, static_cast<PrefixNumber>(digests_.size()));
      if (added) {
        tokens.clear();
        AppendTokens(r, u * unit, end, tokens);
        const Digest* parent = u == 0 ? nullptr : &digests_[prefixes.back()];
        digests_.push_back(hasher.HashBlock(parent, tokens, {}));
      }
      prefixes.push_back(it->second);
    }
  }
}

void Prompts::AppendTokens(size_t r, int64_t begin, int64_t end, std::vector<TokenId>& out) const {
  const WorkloadRequest& request = slice_.requests[r];
  const int64_t size = slice_.block_tokens;
  const int64_t whole = std::ssize(request.blocks) * size;
  for (int64_t at = begin; at < std::min(end, whole);) {
    const int64_t block = at / size;
    const int64_t until = std::min({end, whole, (block + 1) * size});
    AppendBlock(request.blocks[static_cast<size_t>(block)], at - block * size, until - block * size,
                out);
    at = until;
  }
  begin = std::max(begin, whole);
  if (begin >= end) return;
  if (request.next != kNoRequest) {
    AppendTokens(static_cast<size_t>(request.next), begin, end, out);
  } else {
    AppendBlock(Mix(~static_cast<uint64_t>(r)), begin, end, out);
  }
}

std::vector<Digest> Prompts::ChainOf(size_t request) const {
  std::vector<Digest> chain;
  chain.reserve(prefixes_[request].size());
  for (const PrefixNumber prefix : prefixes_[request]) chain.push_back(digests_[prefix]);
  return chain;
}

std::vector<uint64_t> Prompts::HashesOf(size_t request) const {
  std::vector<uint64_t> hashes;
  hashes.reserve(prefixes_[request].size());
  for (const PrefixNumber prefix : prefixes_[request]) hashes.push_back(digests_[prefix].low64());
  return hashes;
}

std::vector<TokenId> Prompts::TokensOf(size_t request) const {
  std::vector<TokenId> tokens;
  const int64_t count = slice_.requests[request].prompt_tokens;
  tokens.reserve(static_cast<size_t>(count + slice_.requests[request].output_tokens));
  AppendTokens(request, 0, count, tokens);
  return tokens;
}

std::vector<TokenId> Prompts::AnswerOf(size_t request) const {
  std::vector<TokenId> tokens;
  const WorkloadRequest& asked = slice_.requests[request];
  tokens.reserve(static_cast<size_t>(asked.output_tokens));
  AppendTokens(request, asked.prompt_tokens, asked.prompt_tokens + asked.output_tokens, tokens);
  return tokens;
}

}  // namespace kvcast::simulate
