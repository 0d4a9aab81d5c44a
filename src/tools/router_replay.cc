// SPDX-License-Identifier: Apache-2.0
#include "src/tools/router_replay.h"

#include <algorithm>
#include <utility>

namespace kvcast::tools {
namespace {

constexpr WorkerId kWorker{0};

}  // namespace

Result<WorkerConfig> RegistrationOf(const ScenarioConfig& config) {
  const auto cache = ValidateCacheConfig(config.cache);
  if (!cache.ok()) return cache.status();
  WorkerConfig registration;
  registration.name = config.name;
  registration.groups = cache->groups;
  registration.hash_block_size = cache->hash_block_size;
  registration.alignment = HitAlignment(*cache);
  return registration;
}

Result<RouterReplay> RouterReplay::Create(const ScenarioConfig& config,
                                          const WorkerConfig& registration, Check check) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(config.none_hash.data());
  auto hasher = BlockHasher::FromNoneHash(config.algorithm, {bytes, config.none_hash.size()});
  if (!hasher.ok()) return hasher.status();
  RouterReplay replay(config, std::move(hasher).value(), std::move(check));
  if (Status added = replay.index_->AddWorker(kWorker, registration); !added.ok()) return added;
  return replay;
}

RouterReplay::RouterReplay(const ScenarioConfig& config, BlockHasher hasher, Check check)
    : hash_form_(config.hash_form),
      unit_(config.cache.hash_block_size),
      hasher_(std::move(hasher)),
      check_(std::move(check)),
      index_(std::make_unique<PrefixIndex>()) {}

void RouterReplay::RunStep(const ScenarioStep& step) {
  for (const ScenarioOp& op : step.ops) Follow(op);
  EventBatch batch;
  batch.events = step.events;
  index_->Apply(kWorker, batch);
  for (const ScenarioProbe& probe : step.probes) RunProbe(step.step, probe);
}

// Later prompts begin with what earlier requests had.
void RouterReplay::Follow(const ScenarioOp& op) {
  if (op.kind == OpKind::kAdd) requests_[op.request] = TokensOf(op.prompt);
  if (op.kind != OpKind::kOutput) return;
  for (const auto& [request, token] : op.sampled) requests_[request].push_back(token);
}

std::vector<TokenId> RouterReplay::TokensOf(const ScenarioPrompt& prompt) const {
  std::vector<TokenId> tokens;
  if (const auto from = requests_.find(prompt.from); from != requests_.end()) {
    tokens = from->second;
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(prompt.take)));
  }
  tokens.insert(tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
  return tokens;
}

void RouterReplay::RunProbe(int64_t step, const ScenarioProbe& probe) {
  const std::vector<TokenId> tokens = TokensOf(probe.prompt);
  std::vector<Digest> digests;
  hasher_.ExtendChain(tokens, unit_, probe.prompt.inputs, digests);
  std::vector<BlockHash> chain;
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, hash_form_));
  const auto matches = index_->Match(chain, unit_, std::ssize(tokens));
  const int64_t predicted = matches.empty() ? -1 : matches[0].gpu_tokens;
  // A probe whose tokens could not be put together again is a difference too.
  const bool same_prompt = std::ssize(tokens) == probe.prompt.length;
  check_(same_prompt && predicted == probe.hit,
         "step " + std::to_string(step) + ": prompt of " + std::to_string(probe.prompt.length) +
             " tokens: predicted " + std::to_string(predicted) + ", recorded " +
             std::to_string(probe.hit));
}

void RouterReplay::CheckFinal(const ScenarioFinal& recorded) {
  uint64_t held = 0;
  for (const auto& group : recorded) held += group.size();
  const uint64_t indexed = counters().residencies;
  check_(indexed == held, "final: " + std::to_string(indexed) + " blocks in the index, recorded " +
                              std::to_string(held));
}

IndexCounters RouterReplay::counters() const { return index_->counters(kWorker); }

}  // namespace kvcast::tools
