// SHA-256 by OpenSSL. The algorithm is fetched once, and the context is reused. OpenSSL's one-shot
// call would fetch the algorithm and create a context for each block. These two steps cost more
// than the digest of a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kvcast/hash/block_hash.h"

// OpenSSL's EVP_MD_CTX.
struct evp_md_ctx_st;

namespace kvcast::internal {

class Sha256 {
 public:
  // nullopt: OpenSSL provides no SHA-256, or there is no memory.
  static std::optional<Sha256> Create();

  Digest operator()(std::span<const uint8_t> bytes);

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  explicit Sha256(std::unique_ptr<evp_md_ctx_st, Free> context) : context_(std::move(context)) {}

  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Computes a digest without a reused context, for the rare large input.
Digest Sha256Once(std::span<const uint8_t> bytes);

}  // namespace kvcast::internal
