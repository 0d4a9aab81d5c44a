// SPDX-License-Identifier: Apache-2.0
#include "src/tools/key_source.h"

#include <numeric>
#include <utility>

#include "kvcast/token_keys.h"

namespace kvcast::tools {
namespace {

class EngineHashKeys : public KeySource {
 public:
  EngineHashKeys(const ScenarioConfig& config, BlockHasher hasher)
      : unit_(config.cache.hash_block_size), form_(config.hash_form), hasher_(std::move(hasher)) {}

  EventBatch Rekey(EventBatch batch) override { return batch; }
  void NoteLeftOut(std::span<const size_t>) override {}
  std::vector<BlockHash> Chain(std::span<const TokenId> tokens, const HashInputs& inputs) override {
    std::vector<Digest> digests;
    hasher_.ExtendChain(tokens, unit_, inputs, digests);
    std::vector<BlockHash> chain;
    for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, form_));
    return chain;
  }
  std::string WhyBelow(std::span<const TokenId>, const HashInputs&, int64_t) override {
    return kUnexplained;
  }
  uint64_t held_back() const override { return 0; }

 private:
  int64_t unit_;
  EventHashForm form_;
  BlockHasher hasher_;
};

TokenKeysConfig TokenConfigOf(const CacheConfig& cache, KeyMode mode) {
  TokenKeysConfig token;
  token.hash_block_size = cache.hash_block_size;
  if (mode == KeyMode::kTokenEvents) return token;
  token.groups = cache.groups;
  token.sparse_rule = SparseRule{cache.rules, cache.scheduler_block_size, cache.retention_interval};
  return token;
}

// The engine's hashes serve to say why a probe is below its hit, and nothing else.
class TokenModeKeys : public KeySource {
 public:
  TokenModeKeys(const ScenarioConfig& config, const TokenKeysConfig& token, BlockHasher hasher)
      : unit_(config.cache.hash_block_size), keys_(token), engine_(config, std::move(hasher)) {}

  EventBatch Rekey(EventBatch batch) override { return keys_.Rekey(batch); }
  void NoteLeftOut(std::span<const size_t> positions) override { keys_.NoteLeftOut(positions); }
  std::vector<BlockHash> Chain(std::span<const TokenId> tokens, const HashInputs& inputs) override {
    return ContentChain(tokens, unit_, inputs);
  }
  std::string WhyBelow(std::span<const TokenId> tokens, const HashInputs& inputs,
                       int64_t hit) override {
    for (const BlockHash& hash : engine_.Chain(tokens.first(static_cast<size_t>(hit)), inputs)) {
      if (const auto why = keys_.WhyUnresolved(hash)) return std::string(UnresolvedName(*why));
    }
    return kUnexplained;
  }
  uint64_t held_back() const override {
    const auto held = keys_.counters().unresolved_held;
    return std::accumulate(held.begin(), held.end(), uint64_t{0});
  }

 private:
  int64_t unit_;
  TokenKeys keys_;
  EngineHashKeys engine_;
};

}  // namespace

std::optional<KeyMode> ParseKeyMode(std::string_view name) {
  if (name == "engine-hash") return KeyMode::kEngineHash;
  if (name == "token") return KeyMode::kToken;
  if (name == "token-events") return KeyMode::kTokenEvents;
  return std::nullopt;
}

Result<std::unique_ptr<KeySource>> MakeKeySource(const ScenarioConfig& config, KeyMode mode) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(config.none_hash.data());
  auto hasher = BlockHasher::FromNoneHash(config.algorithm, {bytes, config.none_hash.size()});
  if (!hasher.ok()) return hasher.status();
  if (mode == KeyMode::kEngineHash) {
    return std::unique_ptr<KeySource>(
        std::make_unique<EngineHashKeys>(config, std::move(hasher).value()));
  }
  const auto cache = ValidateCacheConfig(config.cache);
  if (!cache.ok()) return cache.status();
  return std::unique_ptr<KeySource>(std::make_unique<TokenModeKeys>(
      config, TokenConfigOf(*cache, mode), std::move(hasher).value()));
}

}  // namespace kvcast::tools
