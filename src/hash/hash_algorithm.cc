// SPDX-License-Identifier: Apache-2.0
#include "src/hash/hash_algorithm.h"

#include "src/base/check.h"

namespace kvcast {
namespace {

constexpr std::string_view kAlgorithmNames[] = {"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"};
constexpr std::string_view kExtraKeySchemeNames[] = {"bare", "tagged"};

}  // namespace

std::string_view HashAlgorithmName(HashAlgorithm algorithm) {
  return kAlgorithmNames[static_cast<size_t>(algorithm)];
}

std::optional<HashAlgorithm> ParseHashAlgorithm(std::string_view name) {
  for (size_t i = 0; i < std::size(kAlgorithmNames); ++i) {
    if (kAlgorithmNames[i] == name) return static_cast<HashAlgorithm>(i);
  }
  return std::nullopt;
}

std::string_view ExtraKeySchemeName(ExtraKeyScheme scheme) {
  return kExtraKeySchemeNames[static_cast<size_t>(scheme)];
}

std::optional<ExtraKeyScheme> ParseExtraKeyScheme(std::string_view name) {
  for (size_t i = 0; i < std::size(kExtraKeySchemeNames); ++i) {
    if (kExtraKeySchemeNames[i] == name) return static_cast<ExtraKeyScheme>(i);
  }
  return std::nullopt;
}

uint64_t Digest::low64() const {
  KV_CHECK(size >= 8);
  uint64_t value = 0;
  for (size_t i = size - 8; i < size; ++i) value = value << 8 | data[i];
  return value;
}

BlockHash ToEventHash(const Digest& digest, EventHashForm form) {
  if (form == EventHashForm::kBytes) return BlockHash::FromBytes(digest.bytes());
  return BlockHash::FromUnsigned(digest.low64());
}

}  // namespace kvcast
