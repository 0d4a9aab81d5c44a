// Block hashes: the chain of digests that names every prefix of a prompt, byte for byte as vLLM
// computes it (`--prefix-caching-hash-algo`).
//
//   digest(block) = F( serialise( (parent digest, (token ids...), extra) ) )
//   extra         = the extra keys or None; with lookahead L: (the extra keys or None, t1, ..., tL)
//
// The parent of the first block is NONE_HASH = F(serialise(seed text)). t1, ..., tL are the tokens
// behind the block, and the extra keys are then those of the block and of these tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/extra_key.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast {

enum class HashAlgorithm : uint8_t {
  kSha256,      // pickle protocol 5, SHA-256 (vLLM's default)
  kSha256Cbor,  // canonical CBOR, SHA-256
  kXxhash,      // pickle protocol 5, XXH3-128
  kXxhashCbor,  // canonical CBOR, XXH3-128
};

// "sha256", "sha256_cbor", "xxhash", "xxhash_cbor".
std::string_view HashAlgorithmName(HashAlgorithm algorithm);
std::optional<HashAlgorithm> ParseHashAlgorithm(std::string_view name);

// A digest of 32 bytes (SHA-256) or 16 bytes (XXH3-128, canonical big-endian form).
struct Digest {
  std::array<uint8_t, 32> data{};
  uint8_t size = 0;

  std::span<const uint8_t> bytes() const { return {data.data(), size}; }
  // The integer that events carry by default: the last 8 bytes, big-endian. REQUIRES: size >= 8.
  uint64_t low64() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};

// How digests appear in events (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES).
enum class EventHashForm : uint8_t { kInt64, kBytes };
BlockHash ToEventHash(const Digest& digest, EventHashForm form);

// In which form extra keys are hashed. Events carry the bare form under either scheme.
enum class ExtraKeyScheme : uint8_t {
  // name, (identifier, offset), salt, digest: vLLM before 0.31.
  kBare,
  // ("lora", name, path), ("mm", identifier, offset), ("cache_salt", salt),
  // ("prompt_embeds", digest): vLLM from 0.31 on. No event carries the path.
  kTagged,
};
// "bare", "tagged".
std::string_view ExtraKeySchemeName(ExtraKeyScheme scheme);
std::optional<ExtraKeyScheme> ParseExtraKeyScheme(std::string_view name);

// The most tokens behind a block that its hash may cover.
inline constexpr int64_t kMaxHashLookahead = 8;

// The parts of a chain's preimages that differ between releases, besides the algorithm.
struct ChainForm {
  ExtraKeyScheme extra_keys = ExtraKeyScheme::kBare;
  // L: a block's hash covers so many tokens behind it, and exists only if the prompt has them.
  // vLLM 0.33 sets it for EAGLE, EAGLE3 and MTP. 0 to kMaxHashLookahead.
  int64_t lookahead = 0;

  friend bool operator==(const ChainForm&, const ChainForm&) = default;
};

// Blocks of a prompt of `tokens` tokens that have a hash: floor((tokens - lookahead) / unit), not
// below 0. REQUIRES: unit > 0.
inline int64_t HashedUnits(int64_t tokens, int64_t unit, int64_t lookahead) {
  return tokens <= lookahead ? 0 : (tokens - lookahead) / unit;
}

// One multimodal item of a prompt: `length` positions from `offset` on.
struct MultimodalItem {
  std::string identifier;
  int64_t offset = 0;
  int64_t length = 0;
  // vLLM's pickle schemes write an identifier that is the same Python object as an earlier one of
  // the same block as a back-reference, and an equal but distinct one in full. Equal identifiers
  // with equal, non-zero tags are the same object; a single character below U+0100 always is.
  // Below 2^32 - 1.
  uint32_t object_tag = 0;
};

// Row-major prompt embeddings as raw tensor bytes, one row of row_bytes per prompt position.
struct PromptEmbeddings {
  std::string data;
  size_t row_bytes = 0;
};

// SHA-256 of the embedding rows of each hash unit, where the rows themselves are not at hand.
struct PromptEmbeddingDigests {
  int64_t unit = 0;  // tokens
  // Digest i covers the positions [i * unit, (i + 1) * unit), and under lookahead the L rows behind
  // them.
  std::vector<std::array<uint8_t, 32>> digests;
};

// What besides tokens makes a prompt's blocks different.
struct HashInputs {
  std::string lora_name;  // empty: none
  std::string lora_path;  // of the adapter; hashed in the tagged form, in no event
  // Sorted by offset, as in the engine. Any other order, and offsets and lengths that no prompt
  // has, are safe: they give what the engine's walk over the items gives.
  std::vector<MultimodalItem> mm_items;
  std::string cache_salt;  // empty: none; enters the first block only
  std::optional<PromptEmbeddings> prompt_embeddings;
  // In place of the rows: at most one entry per unit. Not read where the rows are given.
  std::vector<PromptEmbeddingDigests> embedding_digests;

  bool empty() const {
    return lora_name.empty() && mm_items.empty() && cache_salt.empty() && !prompt_embeddings &&
           embedding_digests.empty();
  }
};

// The extra keys of the positions [begin, end), in hash order: LoRA name, (identifier, offset -
// begin) of each overlapping multimodal item, salt (begin = 0 only), SHA-256 of the embedding
// slice, which past the last row is empty and still counts. An embedding digest that the inputs do
// not hold is left out. With lookahead, items and embeddings of [begin, end + form.lookahead).
// Source: vLLM's generate_block_hash_extra_keys from the first item on. Events carry the bare form.
ExtraKeys ExtraKeysFor(const HashInputs& inputs, int64_t begin, int64_t end,
                       const ChainForm& form = {});

// Seed text of NONE_HASH that vLLM uses for the SHA-256 family since 2026-08 if PYTHONHASHSEED is
// unset.
inline constexpr std::string_view kDefaultHashSeed = "vllm-none-hash";

// How a single block is hashed.
struct BlockForm {
  // The form of the keys: under kTagged, keys are the tagged lists themselves.
  ExtraKeyScheme extra_keys = ExtraKeyScheme::kBare;
  // The tokens behind the block that its hash covers; empty: none.
  std::span<const TokenId> lookahead = {};
};

// Computes block digests under one algorithm and one NONE_HASH.
// Thread-compatible: one hasher per thread (it owns a digest context and a scratch buffer).
class BlockHasher {
 public:
  // NONE_HASH from a seed text: the value of PYTHONHASHSEED, or kDefaultHashSeed.
  static Result<BlockHasher> FromSeed(HashAlgorithm algorithm, std::string_view seed);
  // NONE_HASH as raw bytes: engines before 2026-08 take 32 random bytes.
  static Result<BlockHasher> FromNoneHash(HashAlgorithm algorithm,
                                          std::span<const uint8_t> none_hash);

  BlockHasher(BlockHasher&&) noexcept;
  BlockHasher& operator=(BlockHasher&&) noexcept;
  ~BlockHasher();

  HashAlgorithm algorithm() const;
  // NONE_HASH. Not always the size of a digest: see FromNoneHash.
  const Digest& none_hash() const;

  // Digest of one block. parent = nullptr means NONE_HASH. object_tags[i], where given, is the
  // MultimodalItem::object_tag of extra[i]; keys without one are objects of their own.
  Digest HashBlock(const Digest* parent, std::span<const TokenId> tokens, const ExtraKeys& extra,
                   std::span<const uint32_t> object_tags = {}, const BlockForm& form = {});

  // The exact bytes that HashBlock digests; for tests and tools.
  std::string Preimage(const Digest* parent, std::span<const TokenId> tokens,
                       const ExtraKeys& extra, std::span<const uint32_t> object_tags = {},
                       const BlockForm& form = {});

  // Appends to `chain` the digests of all complete units of `unit` tokens that it does not hold
  // yet: chain[i] covers tokens [i*unit, (i+1)*unit), and exists only if form.lookahead tokens
  // stand behind them. It ends before the first unit whose embedding digest the inputs do not hold.
  // REQUIRES: unit > 0; form.lookahead in [0, kMaxHashLookahead].
  // An empty chain means a request that arrives with `tokens`, a chain that is continued one that
  // has grown by output tokens. They differ where several multimodal items touch the first unit
  // that was not complete on arrival: the engine then takes only the last item into account, and
  // so does this function.
  // Without extra keys nothing is allocated but room in `chain`.
  void ExtendChain(std::span<const TokenId> tokens, int64_t unit, const HashInputs& inputs,
                   std::vector<Digest>& chain, const ChainForm& form = {});

 private:
  struct Impl;
  static Result<BlockHasher> Create(HashAlgorithm algorithm);
  explicit BlockHasher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Digest of block `index` of a group whose block holds `units_per_block` hash units: the last fine
// digest inside the block. REQUIRES: the chain reaches that far.
inline const Digest& BlockDigest(std::span<const Digest> chain, int64_t index,
                                 int64_t units_per_block) {
  return chain[static_cast<size_t>((index + 1) * units_per_block - 1)];
}

}  // namespace kvcast
