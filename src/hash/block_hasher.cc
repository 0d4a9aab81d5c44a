// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/base/check.h"
#include "src/hash/block_template.h"
#include "src/hash/extra_keys.h"
#include "src/hash/hash_algorithm.h"
#include "src/hash/preimage.h"
#include "src/hash/sha256.h"
#include "src/hash/xxh3.h"

namespace kvcast {

using internal::BlockKeys;
using internal::BlockTemplate;
using internal::ByteBuffer;
using internal::Serialisation;
using internal::Sha256;

struct BlockHasher::Impl {
  explicit Impl(HashAlgorithm a) : algorithm(a), form(internal::SerialisationOf(a)), shared(form) {}

  const HashAlgorithm algorithm;
  const Serialisation form;
  std::optional<Sha256> sha256;  // nullopt: XXH3
  Digest none_hash;
  // Scratch memory for the current block.
  ByteBuffer preimage;
  BlockKeys keys;
  // For blocks that have only the keys of the adapter `shared_name`, or no keys.
  BlockTemplate shared;
  std::string shared_name;
  std::string shared_path;
  ChainForm shared_form;

  Digest DigestPreimage() {
    return sha256 ? (*sha256)(preimage.bytes()) : internal::Xxh3(preimage.bytes());
  }
  void WritePreimage(const Digest* parent, std::span<const TokenId> tokens,
                     const internal::BlockExtra& extra) {
    internal::WriteBlockPreimage(form, (parent ? *parent : none_hash).bytes(), tokens, extra,
                                 preimage);
  }
  void SetSharedKeys(const HashInputs& inputs, const ChainForm& chain) {
    const bool same_adapter =
        inputs.lora_name == shared_name && (shared_name.empty() || inputs.lora_path == shared_path);
    if (same_adapter && chain == shared_form) return;
    shared.SetKeys(internal::SharedKeys(inputs, chain.extra_keys), chain);
    shared_name = inputs.lora_name;
    shared_path = inputs.lora_path;
    shared_form = chain;
  }
};

namespace {

// Reserves room for `count` digests in total. The capacity at least doubles, so that a chain that
// grows by one hash unit per call is not copied in each call.
void ReserveChain(std::vector<Digest>& chain, size_t count) {
  if (count > chain.capacity()) chain.reserve(std::max(count, 2 * chain.capacity()));
}

}  // namespace

BlockHasher::BlockHasher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockHasher::BlockHasher(BlockHasher&&) noexcept = default;
BlockHasher& BlockHasher::operator=(BlockHasher&&) noexcept = default;
BlockHasher::~BlockHasher() = default;

Result<BlockHasher> BlockHasher::Create(HashAlgorithm algorithm) {
  auto impl = std::make_unique<Impl>(algorithm);
  if (internal::UsesSha256(algorithm)) {
    impl->sha256 = Sha256::Create();
    if (!impl->sha256) return Status(StatusCode::kUnavailable, "OpenSSL offers no SHA-256");
  }
  return BlockHasher(std::move(impl));
}

Result<BlockHasher> BlockHasher::FromSeed(HashAlgorithm algorithm, std::string_view seed) {
  Result<BlockHasher> hasher = Create(algorithm);
  if (!hasher.ok()) return hasher;
  Impl& impl = *hasher->impl_;
  internal::WriteSeedPreimage(impl.form, seed, impl.preimage);
  impl.none_hash = impl.DigestPreimage();
  return hasher;
}

Result<BlockHasher> BlockHasher::FromNoneHash(HashAlgorithm algorithm,
                                              std::span<const uint8_t> none_hash) {
  Digest digest;
  if (none_hash.empty() || none_hash.size() > digest.data.size()) {
    return Status(StatusCode::kInvalidArgument,
                  "NONE_HASH must have 1 to 32 bytes, not " + std::to_string(none_hash.size()));
  }
  Result<BlockHasher> hasher = Create(algorithm);
  if (!hasher.ok()) return hasher;
  std::copy(none_hash.begin(), none_hash.end(), digest.data.begin());
  digest.size = static_cast<uint8_t>(none_hash.size());
  hasher->impl_->none_hash = digest;
  return hasher;
}

HashAlgorithm BlockHasher::algorithm() const { return impl_->algorithm; }

const Digest& BlockHasher::none_hash() const { return impl_->none_hash; }

Digest BlockHasher::HashBlock(const Digest* parent, std::span<const TokenId> tokens,
                              const ExtraKeys& extra, std::span<const uint32_t> object_tags,
                              const BlockForm& form) {
  impl_->WritePreimage(parent, tokens, {extra, object_tags, form});
  return impl_->DigestPreimage();
}

std::string BlockHasher::Preimage(const Digest* parent, std::span<const TokenId> tokens,
                                  const ExtraKeys& extra, std::span<const uint32_t> object_tags,
                                  const BlockForm& form) {
  impl_->WritePreimage(parent, tokens, {extra, object_tags, form});
  return std::string(impl_->preimage.view());
}

void BlockHasher::ExtendChain(std::span<const TokenId> tokens, int64_t hash_block_size,
                              const HashInputs& inputs, std::vector<Digest>& chain,
                              const ChainForm& form) {
  KV_CHECK(hash_block_size > 0);
  KV_CHECK(form.lookahead >= 0 && form.lookahead <= kMaxHashLookahead);
  const auto step = static_cast<size_t>(hash_block_size);
  const auto ahead = static_cast<size_t>(form.lookahead);
  const auto units =
      static_cast<size_t>(HashedUnits(std::ssize(tokens), hash_block_size, form.lookahead));
  if (chain.size() >= units) return;
  ReserveChain(chain, units);
  impl_->SetSharedKeys(inputs, form);
  const bool shared_fits = impl_->shared.Fits(step);
  const bool shared_only = internal::HasSharedKeysOnly(inputs);
  // If the chain is continued, the search starts at the last multimodal item, as in the engine.
  size_t cursor = chain.empty() || inputs.mm_items.empty() ? 0 : inputs.mm_items.size() - 1;
  for (size_t i = chain.size(); i < units; ++i) {
    const auto begin = static_cast<int64_t>(i * step);
    const auto block = tokens.subspan(i * step, step);
    const auto lookahead = tokens.subspan((i + 1) * step, ahead);
    const Digest& parent = i == 0 ? impl_->none_hash : chain[i - 1];
    const internal::HashedRange range{begin, begin + hash_block_size, form.lookahead};
    if (shared_fits && (shared_only || !internal::MayHaveOwnKeys(inputs, range, cursor))) {
      impl_->shared.Write(parent, block, lookahead, impl_->preimage);
    } else {
      BlockKeys& keys = impl_->keys;
      if (!internal::CollectBlockKeys(inputs, range, form.extra_keys, cursor, keys)) return;
      impl_->WritePreimage(&parent, block,
                           {keys.keys, keys.object_tags, {form.extra_keys, lookahead}});
    }
    // The preimage of the next block needs the bytes of the digest. The alignment keeps these bytes
    // within one cache line, so that the copy is faster.
    alignas(32) const Digest digest = impl_->DigestPreimage();
    chain.push_back(digest);
  }
}

}  // namespace kvcast
