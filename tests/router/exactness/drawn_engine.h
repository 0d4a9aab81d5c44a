// Engines of random configurations, and the source configurations that describe the engines to a
// router.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/service/ingest/worker_ingest.h"
#include "tests/router/exactness/random_engine.h"

namespace kvcast::engine {

// A random engine: its cache configuration, and the properties that CacheConfig does not contain.
struct Drawn {
  CacheConfig cache;
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::string seed;
  EventOptions events;
  // The constructor of RandomEngine describes the following members.
  bool images = true;
  int64_t reports = 0;
  int64_t drafts = 0;
};

inline GroupSpec RandomGroup(Random& random) {
  const int64_t size = kHashBlockSize << Pick(random, 0, 2);
  GroupSpec group;
  switch (Pick(random, 0, 7)) {
    case 0:
    case 1:
    case 2:
      group = Full(size);
      break;
    case 3:
    case 4:
    case 5:
      group = Window(Pick(random, 2, 12 * kHashBlockSize), size);
      break;
    case 6:
      group = Mamba(MambaMode::kAlign, size);
      break;
    default:
      group = Chunked(size * Pick(random, 1, 4), size);
  }
  const bool may_have_draft_head = group.kind != SpecKind::kChunkedLocalAttention;
  group.eagle = may_have_draft_head && Pick(random, 0, 5) == 0;
  return group;
}

// Draws the options that only engines with the rules kV032 or later have.
inline void DrawNewRules(Random& random, CacheConfig& config) {
  if (Pick(random, 0, 1) == 0) config.chain_form.extra_keys = ExtraKeyScheme::kTagged;
  if (config.rules >= EngineRules::kV033 && Pick(random, 0, 1) == 0) {
    config.chain_form.lookahead = Pick(random, 1, 3);
    // With a lookahead, the hash of a block also covers the first tokens after the block. So the
    // lookup keeps the last block of a hit, even with a draft head.
    for (GroupSpec& group : config.groups) group.eagle = false;
  }
  if (Pick(random, 0, 4) == 0) {
    GroupSpec replayed = Window(Pick(random, 2, 6 * kHashBlockSize), kHashBlockSize);
    replayed.prefix_cacheable = false;
    config.replay_tokens = replayed.sliding_window;
    config.groups.push_back(replayed);
  }
}

inline Drawn Draw(Random& random) {
  Drawn drawn;
  CacheConfig& config = drawn.cache;
  // Half of the engines have blocks of one size, as most real engines do. Chunked groups keep their
  // size.
  const bool one_size = Pick(random, 0, 1) == 0;
  const int64_t count = Pick(random, 1, 4);
  for (int64_t i = 0; i < count; ++i) {
    GroupSpec group = RandomGroup(random);
    if (one_size && group.kind != SpecKind::kChunkedLocalAttention)
      group.block_size = kHashBlockSize;
    // In Mamba mode "all", hash_block_size equals the block size, so all groups need one block
    // size.
    if (one_size && group.kind == SpecKind::kMamba && Pick(random, 0, 1) == 0) {
      group.mamba_mode = MambaMode::kAll;
    }
    config.groups.push_back(group);
  }
  if (one_size || Pick(random, 0, 1) == 0)
    config.groups[0] = Full(one_size ? kHashBlockSize : 2 * kHashBlockSize);
  if (config.groups.size() > 1) config.hash_block_size = kHashBlockSize;
  config.num_blocks = Pick(random, 60, 200);
  config.max_model_len = 400;
  config.max_in_flight_tokens = 64;
  const std::optional<int64_t> retentions[] = {std::nullopt, 0, 8 * kHashBlockSize};
  config.retention_interval = retentions[Pick(random, 0, 2)];
  const EngineRules rules[] = {EngineRules::kV021, EngineRules::kMain2026May,
                               EngineRules::kMain2026August, EngineRules::kV032,
                               EngineRules::kV033};
  config.rules = rules[Pick(random, 0, 4)];
  if (config.rules >= EngineRules::kV032) DrawNewRules(random, config);
  if (Pick(random, 0, 3) == 0) config.mtp_lookahead_tokens = Pick(random, 1, 3);
  if (Pick(random, 0, 9) == 0) config.decode_context_parallel = 2;
  const HashAlgorithm algorithms[] = {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                                      HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor};
  drawn.algorithm = algorithms[Pick(random, 0, 3)];
  drawn.seed = Pick(random, 0, 1) == 0 ? std::string(kDefaultHashSeed) : "77";
  drawn.events.hash_form = Pick(random, 0, 1) == 0 ? EventHashForm::kInt64 : EventHashForm::kBytes;
  drawn.events.exact_spans = Pick(random, 0, 3) == 0;
  drawn.images = Pick(random, 0, 1) == 0;
  drawn.drafts = Pick(random, 0, 2) == 0 ? Pick(random, 1, 4) : 0;
  // The registration does not state whether the engine reports hits. With Mamba or chunked groups,
  // the router may then count a report as copies and not detect the error.
  const bool reports_recognizable = std::ranges::all_of(config.groups, [](const GroupSpec& group) {
    return IsFullKind(group.kind) || IsWindowKind(group.kind);
  });
  drawn.reports = reports_recognizable && Pick(random, 0, 3) == 0 ? 8 : 0;
  return drawn;
}

// The difference between an engine and its registration: a property that the registration leaves
// out (kHide...), or states wrongly (kWrong...). kHideAll: the registration has only a name.
// kCount: the number of values.
enum class Change {
  kNone,
  kHideAll,
  kHideGroups,  // all properties of the groups
  kHideGroupsButEagle,
  kHideGroupsButChunks,
  kHideAlignment,
  kHideRelease,
  kHideScheme,
  kHideHashBlockSize,
  kHideSparseRule,
  kWrongAlgorithm,
  kWrongSeed,
  kWrongLoraPath,
  kWrongSparseRule,
  kCount,
};

// Removes the groups from the registration, so the router must learn them. Some changes keep one
// property of the groups.
inline void HideGroups(const CacheConfig& cache, Change change, WorkerConfig& worker) {
  worker.groups.clear();
  worker.alignment = 0;
  if (change == Change::kHideGroupsButEagle) {
    const auto has_draft_head = [](const GroupSpec& group) { return group.eagle; };
    // The registration has one value for all groups together.
    worker.eagle = std::ranges::any_of(cache.groups, has_draft_head);
  }
  if (change == Change::kHideGroupsButChunks) {
    std::vector<int64_t> sizes;
    for (const GroupSpec& group : cache.groups) {
      if (group.kind == SpecKind::kChunkedLocalAttention) sizes.push_back(group.chunk_size);
    }
    const bool one = !sizes.empty() && std::ranges::count(sizes, sizes[0]) == std::ssize(sizes);
    if (one) worker.chunk_size = sizes[0];
  }
}

// Returns the registration of the engine, with the change. The registration leaves out hit_reports.
// If it contained HitReports::kExpected, the router would read repeated stores as hit reports until
// a remove contradicts them. Some answers before that remove would be wrong.
inline router::WorkerRegistration SourceOf(const Drawn& drawn, const CacheConfig& cache,
                                           Change change) {
  router::WorkerRegistration source;
  WorkerConfig& worker = source.worker;
  worker.name = "worker";
  if (change == Change::kHideAll) return source;
  worker.groups = cache.groups;
  worker.alignment = HitAlignment(cache);
  worker.rules = cache.rules;
  worker.replay_tokens = cache.replay_tokens;
  worker.hash_lookahead_tokens = cache.chain_form.lookahead;
  worker.hash_block_size = cache.hash_block_size;
  worker.sparse_rule =
      SparseRule{cache.rules, cache.scheduler_block_size, cache.retention_interval};
  source.algorithm = drawn.algorithm;
  source.hash_seed = drawn.seed;
  source.lora_paths = {{"adapter", "/of/the/adapter"}};
  switch (change) {
    case Change::kHideGroups:
    case Change::kHideGroupsButEagle:
    case Change::kHideGroupsButChunks:
      HideGroups(cache, change, worker);
      break;
    case Change::kHideAlignment:
      worker.alignment = 0;
      break;
    case Change::kHideRelease:
      worker.rules.reset();
      break;
    case Change::kHideScheme:
      source.algorithm.reset();
      source.hash_seed.reset();
      break;
    case Change::kHideHashBlockSize:
      worker.hash_block_size = 0;
      break;
    case Change::kHideSparseRule:
      worker.sparse_rule.reset();
      break;
    case Change::kWrongAlgorithm:
      source.algorithm = drawn.algorithm == HashAlgorithm::kXxhash ? HashAlgorithm::kSha256
                                                                   : HashAlgorithm::kXxhash;
      break;
    case Change::kWrongSeed:
      source.hash_seed = "another";
      break;
    case Change::kWrongLoraPath:
      source.lora_paths = {{"adapter", "/of/another"}};
      break;
    case Change::kWrongSparseRule:
      worker.sparse_rule =
          SparseRule{EngineRules::kMain2026August, cache.scheduler_block_size,
                     cache.retention_interval ? std::nullopt : std::optional<int64_t>(0)};
      break;
    default:
      break;
  }
  return source;
}

// Events with exact spans need kvcast-1: vLLM's dialects do not carry the token offset of a store.
inline Dialect DialectOf(const Drawn& drawn) {
  if (drawn.events.exact_spans) return Dialect::kKvcast1;
  return drawn.cache.rules >= EngineRules::kV033 ? Dialect::kVllm12 : Dialect::kVllm10;
}

inline std::string Describe(const Drawn& drawn) {
  const ChainForm& form = drawn.cache.chain_form;
  std::string text =
      "rules " + std::string(EngineRulesName(drawn.cache.rules)) +
      (form.extra_keys == ExtraKeyScheme::kTagged ? " tagged" : " bare") + " lookahead " +
      std::to_string(form.lookahead) + " replay " + std::to_string(drawn.cache.replay_tokens) +
      " retention " + std::to_string(drawn.cache.retention_interval.value_or(-1)) + " reports " +
      std::to_string(drawn.reports) + " drafts " + std::to_string(drawn.drafts) + " groups";
  for (const GroupSpec& group : drawn.cache.groups) {
    text += " (" + std::string(SpecKindName(group.kind)) + " block " +
            std::to_string(group.block_size) + " window " + std::to_string(group.sliding_window) +
            " chunk " + std::to_string(group.chunk_size) + (group.eagle ? " eagle)" : ")");
  }
  return text;
}

}  // namespace kvcast::engine
