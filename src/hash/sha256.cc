// SPDX-License-Identifier: Apache-2.0
#include "src/hash/sha256.h"

#include <openssl/evp.h>

#include "src/base/check.h"

namespace kvcast::internal {
namespace {

// Never freed. Hashers on all threads share it.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

std::optional<Sha256> Sha256::Create() {
  std::unique_ptr<evp_md_ctx_st, Free> context(EVP_MD_CTX_new());
  if (!context || !Algorithm()) return std::nullopt;
  if (!EVP_DigestInit_ex2(context.get(), Algorithm(), nullptr)) return std::nullopt;
  return Sha256(std::move(context));
}

Digest Sha256::operator()(std::span<const uint8_t> bytes) {
  Digest digest;
  unsigned size = 0;
  // A null type reinitialises the context with its own algorithm.
  KV_CHECK(EVP_DigestInit_ex2(context_.get(), nullptr, nullptr) == 1);
  KV_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  KV_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data.data(), &size) == 1);
  digest.size = static_cast<uint8_t>(size);
  return digest;
}

Digest Sha256Once(std::span<const uint8_t> bytes) {
  std::optional<Sha256> sha256 = Sha256::Create();
  KV_CHECK(sha256.has_value());
  return (*sha256)(bytes);
}

}  // namespace kvcast::internal
