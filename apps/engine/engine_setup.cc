// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/engine_setup.h"

#include <sstream>
#include <string_view>

#include "apps/engine/presets.h"
#include "apps/support/number.h"
#include "kvcast/transfer/host_copy_backend.h"

namespace kvcast::tools {
namespace {

Status BadFlag(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

Result<std::optional<int64_t>> ParseRetention(const std::string& text) {
  if (text == "dense") return std::optional<int64_t>();
  const auto value = ParseNumber(text);
  if (!value) {
    return BadFlag("--retention: expected 'dense' or a number of tokens, got '" + text + "'");
  }
  return value;
}

// Configures speculative decoding with an EAGLE head. Since v0.33, the hash of a block covers the
// token after the block. Before v0.33, and always with a KV connector (host memory), each group
// drops the last block of a hit instead.
void AddDraftHead(bool connector, CacheConfig& config) {
  config.mtp_lookahead_tokens = 1;
  if (config.rules >= EngineRules::kV033 && !connector) {
    config.chain_form.lookahead = 1;
    return;
  }
  for (GroupSpec& group : config.groups) group.eagle = true;
}

}  // namespace

Dialect DialectOf(EngineRules rules) {
  switch (rules) {
    case EngineRules::kV021:
      return Dialect::kVllm7;
    case EngineRules::kMain2026May:
      return Dialect::kVllm8;
    case EngineRules::kMain2026August:
      return Dialect::kVllm10;
    case EngineRules::kV032:
      return Dialect::kVllm11;
    case EngineRules::kV033:
      return Dialect::kVllm12;
  }
  return kDefaultDialect;
}

Result<CacheConfig> MakeCacheConfig(const CacheOptions& options) {
  auto preset = FindModelPreset(options.model);
  if (!preset.ok()) return BadFlag("--model: " + preset.status().message());
  auto retention = ParseRetention(options.retention);
  if (!retention.ok()) return retention.status();
  CacheConfig config;
  config.groups = preset->groups;
  config.num_blocks = options.blocks > 0 ? options.blocks : preset->default_blocks;
  config.max_model_len = int64_t{1} << 18;
  config.max_in_flight_tokens = options.max_batched_tokens;
  config.retention_interval = *retention;
  const auto rules = ParseEngineRules(options.rules);
  if (!rules) {
    return BadFlag("--engine-rules: expected " + EngineRulesNames() + ", got '" + options.rules +
                   "'");
  }
  config.rules = *rules;
  if (*rules >= EngineRules::kV032) config.chain_form.extra_keys = ExtraKeyScheme::kTagged;
  if (options.draft_tokens > 0) AddDraftHead(options.cpu_blocks > 0, config);
  return ValidateCacheConfig(std::move(config));
}

Result<BlockHasher> MakeHasher(const std::string& algorithm, const std::string& seed) {
  const auto parsed = ParseHashAlgorithm(algorithm);
  if (!parsed) {
    return BadFlag("--hash-algo: expected sha256, sha256_cbor, xxhash or xxhash_cbor, got '" +
                   algorithm + "'");
  }
  return BlockHasher::FromSeed(*parsed, seed.empty() ? kDefaultHashSeed : std::string_view(seed));
}

Result<EventHashForm> MakeHashForm(const CacheOptions& options) {
  if (options.hash_form == "int64") return EventHashForm::kInt64;
  if (options.hash_form == "bytes") return EventHashForm::kBytes;
  return BadFlag("--hash-form: expected int64 or bytes, got '" + options.hash_form + "'");
}

Result<OffloadKind> MakeOffloadKind(const CacheOptions& options) {
  const auto kind = ParseOffloadKind(options.offload);
  if (!kind) {
    return BadFlag("--offload: expected eager, lazy or connector, got '" + options.offload + "'");
  }
  if (options.blocks_per_chunk > 1 && *kind != OffloadKind::kConnector) {
    return BadFlag("--blocks-per-chunk: requires --offload connector");
  }
  return *kind;
}

WorkerConfig MakeWorkerConfig(const CacheOptions& options, const CacheConfig& cache,
                              const std::string& name) {
  WorkerConfig config;
  config.name = name;
  config.groups = cache.groups;
  config.hash_block_size = cache.hash_block_size;
  config.alignment = HitAlignment(cache);
  config.rules = cache.rules;
  config.hash_lookahead_tokens = cache.chain_form.lookahead;
  config.blocks_per_chunk = options.blocks_per_chunk;
  config.offload_rule =
      OffloadRuleOf(ParseOffloadKind(options.offload).value_or(OffloadKind::kMirrorEager));
  return config;
}

Result<std::unique_ptr<CacheManager>> MakeCacheManager(const CacheOptions& options) {
  auto config = MakeCacheConfig(options);
  if (!config.ok()) return config.status();
  auto hasher = MakeHasher(options.hash_algorithm, options.hash_seed);
  if (!hasher.ok()) return hasher.status();
  auto form = MakeHashForm(options);
  if (!form.ok()) return form.status();
  return CacheManager::Create(*config, std::move(hasher).value(),
                              {.hash_form = *form,
                               .announce_once = options.announce_once,
                               .exact_spans = options.exact_spans});
}

Result<std::unique_ptr<ChainProver>> MakeChainProver(const CacheOptions& options) {
  const auto config = MakeCacheConfig(options);
  if (!config.ok()) return config.status();
  auto hasher = MakeHasher(options.hash_algorithm, options.hash_seed);
  if (!hasher.ok()) return hasher.status();
  const auto form = MakeHashForm(options);
  if (!form.ok()) return form.status();
  return ChainProver::Create(*config, std::move(hasher).value(), {.hash_form = *form});
}

Result<std::unique_ptr<HostTier>> MakeHostTier(const CacheOptions& options, CacheManager& cache) {
  const bool cuda = options.device == "cuda";
  if (options.cpu_blocks == 0) {
    if (cuda) return BadFlag("--device cuda: requires --cpu-blocks");
    if (options.offload != "eager") {
      return BadFlag("--offload " + options.offload + ": requires --cpu-blocks");
    }
    if (options.blocks_per_chunk != 1) {
      return BadFlag("--blocks-per-chunk: requires --offload connector and --cpu-blocks");
    }
    return std::unique_ptr<HostTier>();
  }
  auto form = MakeHashForm(options);
  if (!form.ok()) return form.status();
  const auto kind = MakeOffloadKind(options);
  if (!kind.ok()) return kind.status();
  HostTierConfig config;
  config.cpu_blocks = options.cpu_blocks;
  config.kind = *kind;
  config.blocks_per_chunk = options.blocks_per_chunk;
  config.hash_form = *form;
  if (cuda) {
    const auto device = OpenCudaDevice();
    if (!device.ok()) {
      return Status(device.status().code(), "--device cuda: " + device.status().message());
    }
    return HostTier::Create(config, cache, *device);
  }
  auto backend = MakeHostCopyBackend({.threads = 1});
  if (!backend.ok()) return backend.status();
  auto tier = HostTier::Create(config, cache, std::move(backend).value());
  if (!tier.ok()) return Status(tier.status().code(), "--cpu-blocks: " + tier.status().message());
  return tier;
}

Result<std::vector<PeerDialect>> DialectsOf(const CacheOptions& options,
                                            const std::string& dialects) {
  auto cache = MakeCacheConfig(options);
  if (!cache.ok()) return cache.status();
  if (dialects.empty()) {
    return std::vector<PeerDialect>{{.dialect = DialectOf(cache->rules)}};
  }
  const bool host_memory = options.cpu_blocks > 0;
  std::vector<PeerDialect> chosen;
  if (dialects == "all") {
    for (const PeerDialect& dialect : AllPeerDialects()) {
      if (CheckRepresentable(dialect, *cache, host_memory).ok()) chosen.push_back(dialect);
    }
    return chosen;
  }
  std::istringstream names(dialects);
  for (std::string name; std::getline(names, name, ',');) {
    const auto dialect = ParsePeerDialect(name);
    if (!dialect) return BadFlag("--dialect: unknown dialect '" + name + "'");
    const Status representable = CheckRepresentable(*dialect, *cache, host_memory);
    if (!representable.ok()) return BadFlag("--dialect: " + representable.message());
    chosen.push_back(*dialect);
  }
  if (chosen.empty()) return BadFlag("--dialect: the list is empty");
  return chosen;
}

SimEngineConfig MakeSimConfig(const CacheOptions& options) {
  SimEngineConfig config;
  config.max_batched_tokens = options.max_batched_tokens;
  config.draft_tokens = options.draft_tokens;
  config.step.prefill.token_s = 1 / options.prefill_rate;
  if (options.load_rate > 0) config.load_tokens_per_s = options.load_rate;
  return config;
}

}  // namespace kvcast::tools
