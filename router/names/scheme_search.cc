// SPDX-License-Identifier: Apache-2.0
#include "router/names/scheme_search.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kvcast/router/prefix_index.h"

namespace kvcast::router {
namespace {

constexpr HashAlgorithm kAlgorithms[] = {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                                         HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor};
// The cost of a hash in addition to the cost of its input, in tokens.
constexpr int64_t kTokensAHash = 16;
constexpr size_t kNamedBytes = 4;  // bytes of a raw NONE_HASH in its name

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
                    int64_t hash_block_size) {
  std::string text(algorithm ? HashAlgorithmName(*algorithm) : "");
  const auto separate = [&text] { text += text.empty() ? "" : ", "; };
  if (has_seed) {
    separate();
    text.append("seed ").append(ShownHashSeed(seed));
  }
  if (hash_block_size > 0) {
    separate();
    text += "unit " + std::to_string(hash_block_size);
  }
  return text;
}

// The length of the keys; 8 bytes count as one token.
size_t TokensOf(const ExtraKeys& keys) {
  size_t tokens = 0;
  for (const ExtraKey& key : keys) {
    ++tokens;
    if (const auto* text = std::get_if<std::string>(&key.value)) tokens += text->size() / 8;
    if (const auto* bytes = std::get_if<Bytes>(&key.value)) tokens += bytes->data.size() / 8;
    if (const auto* list = std::get_if<ExtraKeyList>(&key.value)) tokens += TokensOf(list->items);
  }
  return tokens;
}

Status Bad(const std::string& message) { return {StatusCode::kInvalidArgument, message}; }

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

using LookaheadRoom = std::array<TokenId, kMaxHashLookahead>;

// Returns the tokens behind position `end` that a hash covers: first the tokens of the span, then
// the lookahead tokens of the last block.
std::span<const TokenId> TokensBehind(const BlockStored& event, size_t end, LookaheadRoom& room) {
  if (!event.lookahead) return {};
  const std::span<const TokenId> tokens = *event.token_ids;
  const auto width = static_cast<size_t>(event.lookahead->width);
  if (end + width <= tokens.size()) return tokens.subspan(end, width);
  const auto inside = tokens.subspan(end);
  const auto behind = std::span(event.lookahead->token_ids).last(width);
  const auto free = std::copy(inside.begin(), inside.end(), room.begin());
  std::copy_n(behind.begin(), width - inside.size(), free);
  return std::span(room).first(width);
}

// True if the probe has keys. Only then tagged keys differ from bare keys.
bool HasForms(const BlockProbe& probe) {
  const size_t blocks = probe.incomplete ? probe.event.block_hashes.size() : 1;
  KeyKindSet kinds;
  for (size_t i = 0; i < blocks; ++i) kinds |= KindsOf(probe.event, probe.index + i);
  return (kinds & KeyedKinds()).any();
}

}  // namespace

bool IsLookaheadConsistent(const BlockStored& event) {
  if (!event.lookahead) return true;
  const auto width = static_cast<size_t>(event.lookahead->width);
  const auto size = static_cast<size_t>(event.block_size);
  const std::span<const TokenId> tokens = *event.token_ids;
  const std::span<const TokenId> sent = event.lookahead->token_ids;
  if (tokens.size() != event.block_hashes.size() * size) return true;  // positions unknown
  LookaheadRoom room;
  for (size_t i = 0; i + 1 < event.block_hashes.size(); ++i) {
    const auto behind = TokensBehind(event, (i + 1) * size, room);
    if (!std::ranges::equal(behind, sent.subspan(i * width, width))) return false;
  }
  return true;
}

SchemeSearch::SchemeSearch(const SchemeDetectorConfig& config)
    : registered_algorithm_(config.algorithm),
      registered_hash_block_size_(config.hash_block_size),
      registered_seed_(config.seed || !config.none_hash.empty()),
      registration_(
          InWords(config.algorithm,
                  config.none_hash.empty() ? config.seed.value_or("") : NameOf(config.none_hash),
                  registered_seed_, config.hash_block_size)),
      lora_paths_(config.lora_paths) {}

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

Digest SchemeSearch::HashBlock(BlockHasher& hasher, const Digest& parent, const BlockStored& event,
                               size_t index, int64_t hash_block_size, const KeyReading& keys,
                               ExtraKeyScheme form) {
  const auto size = static_cast<size_t>(event.block_size);
  const auto step = static_cast<size_t>(hash_block_size);
  const std::span<const TokenId> tokens = *event.token_ids;
  LookaheadRoom room;
  Digest digest = parent;
  for (size_t begin = index * size; begin < (index + 1) * size; begin += step) {
    const Digest before = digest;
    const BlockForm block{form, TokensBehind(event, begin + step, room)};
    const bool first = begin == index * size;
    digest =
        hasher.HashBlock(&before, tokens.subspan(begin, step), first ? keys.first : keys.rest,
                         first ? std::span(keys.object_tags) : std::span<const uint32_t>(), block);
    ++hashes_;
    tokens_ += kTokensAHash + static_cast<int64_t>(step + TokensOf(first ? keys.first : keys.rest));
  }
  return digest;
}

std::optional<Digest> SchemeSearch::HashSpan(BlockHasher& hasher, const Digest& parent,
                                             const BlockStored& event, int64_t hash_block_size,
                                             ExtraKeyScheme form) {
  std::optional<KeyReading> keys = ReadSpanKeys(event, form, lora_paths_);
  const size_t blocks = event.token_ids->size() / static_cast<size_t>(event.block_size);
  if (!keys ||
      static_cast<int64_t>(blocks) * (event.block_size / hash_block_size) > kMaxTestedUnits) {
    return std::nullopt;
  }
  size_t fits = 0;
  Digest digest = parent;
  for (size_t i = 0; i < blocks && blocks - i >= event.block_hashes.size() - fits; ++i) {
    digest = HashBlock(hasher, digest, event, i, hash_block_size, *keys, form);
    keys->first = keys->rest;
    const BlockHash& sent = event.block_hashes[fits];
    const auto wire = sent.is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
    if (ToEventHash(digest, wire) == sent) ++fits;
    if (fits == event.block_hashes.size()) return digest;
  }
  return std::nullopt;
}

std::optional<Digest> SchemeSearch::HashInForm(BlockHasher& hasher, const Digest& parent,
                                               const BlockProbe& probe, int64_t hash_block_size,
                                               ExtraKeyScheme form) {
  const BlockStored& event = probe.event;
  if (probe.incomplete) return HashSpan(hasher, parent, event, hash_block_size, form);
  const BlockHash& sent = event.block_hashes[probe.index];
  const auto wire = sent.is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
  const int64_t units = event.block_size / hash_block_size;
  for (const KeyReading& keys : ReadKeys(event, probe.index, units, form, lora_paths_).readings) {
    const Digest digest =
        HashBlock(hasher, parent, event, probe.index, hash_block_size, keys, form);
    if (ToEventHash(digest, wire) == sent) return digest;
  }
  return std::nullopt;
}

std::optional<Fit> SchemeSearch::Hash(BlockHasher& hasher, const Digest& parent,
                                      const BlockProbe& probe, int64_t hash_block_size) {
  const bool has_forms = HasForms(probe);
  const bool bare_first = !has_forms || preferred_ == ExtraKeyScheme::kBare;
  const ExtraKeyScheme first = bare_first ? ExtraKeyScheme::kBare : ExtraKeyScheme::kTagged;
  if (const auto digest = HashInForm(hasher, parent, probe, hash_block_size, first)) {
    return Fit{*digest, first};
  }
  if (!has_forms) return std::nullopt;
  const ExtraKeyScheme other = bare_first ? ExtraKeyScheme::kTagged : ExtraKeyScheme::kBare;
  if (const auto digest = HashInForm(hasher, parent, probe, hash_block_size, other)) {
    return Fit{*digest, other};
  }
  return std::nullopt;
}

std::optional<Fit> SchemeSearch::TryScheme(const ChainScheme& scheme, const BlockProbe& probe) {
  const int64_t hash_block_size = scheme.hash_block_size;
  if (probe.event.block_size % hash_block_size != 0) return std::nullopt;
  if (probe.event.block_size / hash_block_size > kMaxUnitsPerBlock) return std::nullopt;
  BlockHasher& hasher = FamilyOf(scheme.algorithm).hasher;
  if (probe.parent) return Hash(hasher, *probe.parent, probe, hash_block_size);
  if (scheme.none_hash.empty()) return std::nullopt;
  Digest none_hash;
  none_hash.size = static_cast<uint8_t>(scheme.none_hash.size());
  std::copy(scheme.none_hash.begin(), scheme.none_hash.end(), none_hash.data.begin());
  return Hash(hasher, none_hash, probe, hash_block_size);
}

std::optional<SchemeSearch::Found> SchemeSearch::FindAtHashBlockSize(const BlockProbe& probe,
                                                                     int64_t hash_block_size) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    Family& family = FamilyOf(algorithm);
    if (IsAtEnd()) return std::nullopt;
    if (probe.parent) {
      const auto fit = Hash(family.hasher, *probe.parent, probe, hash_block_size);
      if (fit) return Found{{algorithm, "", {}, hash_block_size}, *fit};
      continue;
    }
    for (const Candidate& candidate : family.candidates) {
      if (IsAtEnd()) return std::nullopt;
      const auto fit = Hash(family.hasher, candidate.none_hash, probe, hash_block_size);
      if (!fit) continue;
      const auto none_hash = candidate.none_hash.bytes();
      return Found{
          {algorithm, candidate.seed, {none_hash.begin(), none_hash.end()}, hash_block_size}, *fit};
    }
  }
  return std::nullopt;
}

std::optional<SchemeSearch::Found> SchemeSearch::Find(const BlockProbe& probe) {
  was_cut_ = credit_ <= 0;
  if (was_cut_) return std::nullopt;
  search_end_ = probe.incomplete ? hashes_ + kMaxSpanSearch : UINT64_MAX;
  const int64_t begin = tokens_;
  tokens_end_ = begin + kMaxSearchTokens;
  const auto found = FindAtAnySize(probe);
  credit_ -= tokens_ - begin;
  return found;
}

std::optional<SchemeSearch::Found> SchemeSearch::FindAtAnySize(const BlockProbe& probe) {
  const int64_t size = probe.event.block_size;
  // One unit per block is tried first, because this is the usual size.
  for (int64_t units = 1; units <= std::min(kMaxUnitsPerBlock, size); ++units) {
    if (size % units != 0) continue;
    if (auto found = FindAtHashBlockSize(probe, size / units)) return found;
  }
  return std::nullopt;
}

bool SchemeSearch::IsAsRegistered(const ChainScheme& scheme) const {
  if (registered_algorithm_ && scheme.algorithm != *registered_algorithm_) return false;
  if (registered_hash_block_size_ != 0 && scheme.hash_block_size != registered_hash_block_size_)
    return false;
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
