// SPDX-License-Identifier: Apache-2.0
#include "router/scheme_search.h"

#include <algorithm>
#include <utility>

#include "kvcast/prefix_index.h"
#include "router/key_readings.h"

namespace kvcast::router {
namespace {

constexpr HashAlgorithm kAlgorithms[] = {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                                         HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor};
constexpr size_t kNamedBytes = 4;  // of a raw NONE_HASH

std::string NameOf(std::span<const uint8_t> none_hash) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string name = "none_hash:";
  for (const uint8_t byte : none_hash.first(std::min(none_hash.size(), kNamedBytes))) {
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  return name;
}

std::string InWords(std::optional<HashAlgorithm> algorithm, std::string_view seed, bool has_seed,
                    int64_t unit) {
  std::string text(algorithm ? HashAlgorithmName(*algorithm) : "");
  const auto separate = [&text] { text += text.empty() ? "" : ", "; };
  if (has_seed) {
    separate();
    text += "seed " + std::string(seed);
  }
  if (unit > 0) {
    separate();
    text += "unit " + std::to_string(unit);
  }
  return text;
}

Status Bad(const std::string& what) { return {StatusCode::kInvalidArgument, what}; }

Status Check(const SchemeDetectorConfig& config) {
  if (config.seeds.size() + config.none_hashes.size() > kMaxSchemeSeeds) {
    return Bad("seeds: more than " + std::to_string(kMaxSchemeSeeds));
  }
  if (config.hash_block_size < 0 || config.hash_block_size > kMaxBlockSize) {
    return Bad("hash_block_size: out of range");
  }
  if (config.sample_period < 1) return Bad("sample_period: must be positive");
  return {};
}

}  // namespace

SchemeSearch::SchemeSearch(const SchemeDetectorConfig& config)
    : registered_algorithm_(config.algorithm),
      registered_unit_(config.hash_block_size),
      registered_seed_(config.seed || !config.none_hash.empty()),
      registration_(
          InWords(config.algorithm,
                  config.none_hash.empty() ? config.seed.value_or("") : NameOf(config.none_hash),
                  registered_seed_, config.hash_block_size)) {}

Result<SchemeSearch> SchemeSearch::Create(const SchemeDetectorConfig& config) {
  if (const Status status = Check(config); !status.ok()) return status;
  SchemeSearch search(config);
  for (const HashAlgorithm algorithm : kAlgorithms) {
    if (const Status status = search.AddFamily(algorithm, config); !status.ok()) return status;
  }
  return search;
}

Status SchemeSearch::AddFamily(HashAlgorithm algorithm, const SchemeDetectorConfig& config) {
  auto hasher = BlockHasher::FromSeed(algorithm, kDefaultHashSeed);
  if (!hasher.ok()) return hasher.status();
  Family& family = families_.emplace_back(Family{std::move(hasher).value(), {}});
  Status status;
  const auto add = [&](const Result<BlockHasher>& made, std::string seed) {
    if (made.ok()) family.candidates.push_back({made->none_hash(), std::move(seed)});
    if (!made.ok()) status = made.status();
  };
  if (!config.none_hash.empty()) {
    add(BlockHasher::FromNoneHash(algorithm, config.none_hash), NameOf(config.none_hash));
  } else if (config.seed) {
    add(BlockHasher::FromSeed(algorithm, *config.seed), *config.seed);
  }
  for (const std::string& seed : config.seeds) add(BlockHasher::FromSeed(algorithm, seed), seed);
  for (const auto& none_hash : config.none_hashes) {
    add(BlockHasher::FromNoneHash(algorithm, none_hash), NameOf(none_hash));
  }
  return status;
}

std::optional<Digest> SchemeSearch::Hash(BlockHasher& hasher, const Digest& parent,
                                         const BlockProbe& probe, int64_t unit) {
  const int64_t units = probe.event.block_size / unit;
  const auto size = static_cast<size_t>(probe.event.block_size);
  const auto step = static_cast<size_t>(unit);
  const auto tokens = std::span(*probe.event.token_ids).subspan(probe.index * size, size);
  const BlockHash& sent = probe.event.block_hashes[probe.index];
  const auto form = sent.is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
  for (const KeyReading& reading : ReadKeys(probe.event, probe.index, units).readings) {
    Digest digest =
        hasher.HashBlock(&parent, tokens.first(step), reading.first, reading.object_tags);
    for (size_t at = step; at < size; at += step) {
      const Digest before = digest;
      digest = hasher.HashBlock(&before, tokens.subspan(at, step), reading.rest);
    }
    hashes_ += static_cast<uint64_t>(units);
    if (ToEventHash(digest, form) == sent) return digest;
  }
  return std::nullopt;
}

std::optional<Digest> SchemeSearch::Fit(const ChainScheme& scheme, const BlockProbe& probe) {
  const int64_t unit = scheme.hash_block_size;
  if (probe.event.block_size % unit != 0) return std::nullopt;
  if (probe.event.block_size / unit > kMaxUnitsPerBlock) return std::nullopt;
  BlockHasher& hasher = FamilyOf(scheme.algorithm).hasher;
  if (probe.parent) return Hash(hasher, *probe.parent, probe, unit);
  if (scheme.none_hash.empty()) return std::nullopt;
  Digest none_hash;
  none_hash.size = static_cast<uint8_t>(scheme.none_hash.size());
  std::copy(scheme.none_hash.begin(), scheme.none_hash.end(), none_hash.data.begin());
  return Hash(hasher, none_hash, probe, unit);
}

std::optional<SchemeSearch::Found> SchemeSearch::FindAtUnit(const BlockProbe& probe, int64_t unit) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    Family& family = FamilyOf(algorithm);
    if (probe.parent) {
      const auto digest = Hash(family.hasher, *probe.parent, probe, unit);
      if (digest) return Found{{algorithm, "", {}, unit}, *digest};
      continue;
    }
    for (const Candidate& candidate : family.candidates) {
      const auto digest = Hash(family.hasher, candidate.none_hash, probe, unit);
      if (!digest) continue;
      const auto none_hash = candidate.none_hash.bytes();
      return Found{{algorithm, candidate.seed, {none_hash.begin(), none_hash.end()}, unit},
                   *digest};
    }
  }
  return std::nullopt;
}

std::optional<SchemeSearch::Found> SchemeSearch::Find(const BlockProbe& probe) {
  const int64_t size = probe.event.block_size;
  // The unit is mostly the block.
  for (int64_t units = 1; units <= std::min(kMaxUnitsPerBlock, size); ++units) {
    if (size % units != 0) continue;
    if (auto found = FindAtUnit(probe, size / units)) return found;
  }
  return std::nullopt;
}

bool SchemeSearch::IsAsRegistered(const ChainScheme& scheme) const {
  if (registered_algorithm_ && scheme.algorithm != *registered_algorithm_) return false;
  if (registered_unit_ != 0 && scheme.hash_block_size != registered_unit_) return false;
  if (!registered_seed_ || scheme.none_hash.empty()) return true;
  const auto& candidates = families_[static_cast<size_t>(scheme.algorithm)].candidates;
  return std::ranges::equal(candidates.front().none_hash.bytes(), scheme.none_hash);
}

}  // namespace kvcast::router

namespace kvcast {

std::string ToString(const ChainScheme& scheme) {
  return router::InWords(scheme.algorithm, scheme.seed, !scheme.none_hash.empty(),
                         scheme.hash_block_size);
}

}  // namespace kvcast
