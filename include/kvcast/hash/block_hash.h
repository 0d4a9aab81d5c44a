// Block hashes: a chain of digests. Each digest names one prefix of a prompt. It is equal, byte for
// byte, to the digest that vLLM computes (`--prefix-caching-hash-algo`).
//
//   digest(block) = F( serialise( (parent digest, (token ids...), extra) ) )
//   extra         = the extra keys or None; with lookahead L: (the extra keys or None, t1, ..., tL)
//
// F is SHA-256 or XXH3-128. The parent of the first block is NONE_HASH = F(serialise(seed text)).
// t1, ..., tL are the L tokens after the block. With lookahead, the extra keys cover the block and
// these L tokens.
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

// Serialisation and digest function of a chain.
enum class HashAlgorithm : uint8_t {
  kSha256,      // pickle protocol 5, SHA-256 (vLLM's default)
  kSha256Cbor,  // canonical CBOR, SHA-256
  kXxhash,      // pickle protocol 5, XXH3-128
  kXxhashCbor,  // canonical CBOR, XXH3-128
};

// Name and parser: "sha256", "sha256_cbor", "xxhash", "xxhash_cbor". ParseHashAlgorithm returns
// nullopt for any other name.
std::string_view HashAlgorithmName(HashAlgorithm algorithm);
std::optional<HashAlgorithm> ParseHashAlgorithm(std::string_view name);

// A digest of 32 bytes (SHA-256) or 16 bytes (XXH3-128, canonical big-endian form).
struct Digest {
  std::array<uint8_t, 32> data{};
  uint8_t size = 0;

  std::span<const uint8_t> bytes() const { return {data.data(), size}; }
  // The integer form that events carry by default: the last 8 bytes, big-endian. REQUIRES: a digest
  // of at least 8 bytes.
  uint64_t low64() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};

// The form of a digest in an event (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES).
enum class EventHashForm : uint8_t { kInt64, kBytes };
BlockHash ToEventHash(const Digest& digest, EventHashForm form);

// The form in which the hash covers extra keys. With both schemes, events carry the bare form.
enum class ExtraKeyScheme : uint8_t {
  // name, (identifier, offset), salt, digest. Used by vLLM before 0.31.
  kBare,
  // ("lora", name, path), ("mm", identifier, offset), ("cache_salt", salt), ("prompt_embeds",
  // digest). Used by vLLM from 0.31 on. No event carries the path of the adapter.
  kTagged,
};
// Name and parser: "bare", "tagged". ParseExtraKeyScheme returns nullopt for any other name.
std::string_view ExtraKeySchemeName(ExtraKeyScheme scheme);
std::optional<ExtraKeyScheme> ParseExtraKeyScheme(std::string_view name);

// The maximum number of lookahead tokens that a block hash may cover.
inline constexpr int64_t kMaxHashLookahead = 8;

// The properties of the hash input that differ between releases, besides the algorithm.
struct ChainForm {
  ExtraKeyScheme extra_keys = ExtraKeyScheme::kBare;
  // L, the number of tokens after a block that its hash also covers; 0 to kMaxHashLookahead. A
  // block has a hash only if the prompt has these L tokens. vLLM 0.33 sets L for EAGLE, EAGLE3 and
  // MTP.
  int64_t lookahead = 0;

  friend bool operator==(const ChainForm&, const ChainForm&) = default;
};

// The number of hash units that have a hash, in a prompt of `tokens` tokens. The result is
// floor((tokens - lookahead) / hash_block_size), at least 0. REQUIRES: hash_block_size > 0.
inline int64_t HashedUnits(int64_t tokens, int64_t hash_block_size, int64_t lookahead) {
  return tokens <= lookahead ? 0 : (tokens - lookahead) / hash_block_size;
}

// One multimodal item of a prompt. It covers the `length` positions from `offset` on.
struct MultimodalItem {
  std::string identifier;
  int64_t offset = 0;
  int64_t length = 0;
  // Number of the Python object that holds the identifier; below 2^32 - 1. Equal identifiers with
  // equal tags above 0 are the same object. Tag 0: no other item has this object. Equal texts of a
  // single character below U+0100 are always the same object. The tag changes only the pickle
  // schemes: vLLM writes the first occurrence of an object in a block in full, and each later
  // occurrence as a back-reference.
  uint32_t object_tag = 0;
};

// Prompt embeddings as raw tensor bytes, row-major. There is one row of `row_bytes` bytes per
// prompt position.
struct PromptEmbeddings {
  std::string data;
  size_t row_bytes = 0;
};

// SHA-256 of the embedding rows of each hash unit. A caller without the rows gives these digests.
struct PromptEmbeddingDigests {
  int64_t hash_block_size = 0;  // tokens per hash unit
  // Digest i covers the rows of the positions [i * hash_block_size, (i + 1) * hash_block_size).
  // With lookahead it also covers the L rows after them.
  std::vector<std::array<uint8_t, 32>> digests;
};

// The inputs of a prompt's block hashes besides the tokens.
struct HashInputs {
  std::string lora_name;  // empty: none
  // Path of the adapter. Only the tagged form hashes it; no event carries it.
  std::string lora_path;
  // Sorted by offset, as in the engine. Other orders are safe. Offsets and lengths outside the
  // prompt are safe too. The result is always the result of the engine's loop over the items.
  std::vector<MultimodalItem> mm_items;
  // Empty: none. The salt is part of the first block only.
  std::string cache_salt;
  std::optional<PromptEmbeddings> prompt_embeddings;
  // Digests that replace prompt_embeddings. At most one entry for each value of `hash_block_size`.
  // Ignored if prompt_embeddings is set.
  std::vector<PromptEmbeddingDigests> embedding_digests;

  bool empty() const {
    return lora_name.empty() && mm_items.empty() && cache_salt.empty() && !prompt_embeddings &&
           embedding_digests.empty();
  }
};

// Returns the extra keys of the positions [begin, end), in hash order:
// - the LoRA name
// - (identifier, offset - begin) of each overlapping multimodal item
// - the salt, if begin is 0
// - SHA-256 of the embedding rows of these positions. If all positions are after the last row, the
//   SHA-256 of 0 bytes is still a key. If the inputs hold neither rows nor this digest, there is no
//   such key.
//
// With lookahead, the items and the rows of the positions [begin, end + form.lookahead) count.
// Source: vLLM's generate_block_hash_extra_keys with start_mm_idx = 0. Events carry the bare form.
ExtraKeys ExtraKeysFor(const HashInputs& inputs, int64_t begin, int64_t end,
                       const ChainForm& form = {});

// The default seed text of NONE_HASH. vLLM from 2026-08 on uses it with SHA-256 if PYTHONHASHSEED
// is not set.
inline constexpr std::string_view kDefaultHashSeed = "vllm-none-hash";

// Options for the hash of a single block.
struct BlockForm {
  // The form of the keys. With kTagged, the caller passes the tagged lists as keys.
  ExtraKeyScheme extra_keys = ExtraKeyScheme::kBare;
  // The lookahead tokens that the hash covers. Empty: no lookahead.
  std::span<const TokenId> lookahead = {};
};

// Computes block digests for one algorithm and one NONE_HASH. Thread-compatible: each thread needs
// its own hasher, because a hasher owns a digest context and a scratch buffer.
class BlockHasher {
 public:
  // Computes NONE_HASH from a seed text: the value of PYTHONHASHSEED, or kDefaultHashSeed. Error:
  // kUnavailable if OpenSSL offers no SHA-256.
  static Result<BlockHasher> FromSeed(HashAlgorithm algorithm, std::string_view seed);
  // Takes NONE_HASH as raw bytes. vLLM before 2026-08 uses 32 random bytes if PYTHONHASHSEED is not
  // set. Errors: kInvalidArgument if `none_hash` does not have 1 to 32 bytes; kUnavailable if
  // OpenSSL offers no SHA-256.
  static Result<BlockHasher> FromNoneHash(HashAlgorithm algorithm,
                                          std::span<const uint8_t> none_hash);

  BlockHasher(BlockHasher&&) noexcept;
  BlockHasher& operator=(BlockHasher&&) noexcept;
  ~BlockHasher();

  HashAlgorithm algorithm() const;
  // NONE_HASH. Its size may differ from the size of a digest; see FromNoneHash.
  const Digest& none_hash() const;

  // Returns the digest of one block. parent = nullptr means NONE_HASH. object_tags[i], if given, is
  // the MultimodalItem::object_tag of extra[i]. A key without a tag is a distinct object.
  Digest HashBlock(const Digest* parent, std::span<const TokenId> tokens, const ExtraKeys& extra,
                   std::span<const uint32_t> object_tags = {}, const BlockForm& form = {});

  // Returns the exact bytes that HashBlock digests. For tests and tools.
  std::string Preimage(const Digest* parent, std::span<const TokenId> tokens,
                       const ExtraKeys& extra, std::span<const uint32_t> object_tags = {},
                       const BlockForm& form = {});

  // Appends the missing digests of all complete hash units to `chain`. chain[i] covers the tokens
  // [i*hash_block_size, (i+1)*hash_block_size). An element exists only if form.lookahead tokens
  // follow its unit. The chain ends before the first unit whose embedding digest the inputs do not
  // hold.
  //
  // An empty chain means that a request arrives with `tokens`. A non-empty chain means that the
  // request has grown by output tokens. The two cases differ if several multimodal items touch the
  // first unit that was incomplete on arrival: for a request that has grown, the engine and this
  // function use only the last item.
  //
  // REQUIRES: hash_block_size > 0; form.lookahead in [0, kMaxHashLookahead]. Without extra keys,
  // only the growth of `chain` allocates memory.
  void ExtendChain(std::span<const TokenId> tokens, int64_t hash_block_size,
                   const HashInputs& inputs, std::vector<Digest>& chain,
                   const ChainForm& form = {});

 private:
  struct Impl;
  static Result<BlockHasher> Create(HashAlgorithm algorithm);
  explicit BlockHasher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns the digest of block `index` of a group with `units_per_block` hash units per block: the
// digest of the last unit in the block. REQUIRES: the chain contains this unit.
inline const Digest& BlockDigest(std::span<const Digest> chain, int64_t index,
                                 int64_t units_per_block) {
  return chain[static_cast<size_t>((index + 1) * units_per_block - 1)];
}

}  // namespace kvcast
