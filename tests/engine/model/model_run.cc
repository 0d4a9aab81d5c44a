// ModelRun: the choice of the calls.
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model/model_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvcast::naive {
namespace {

constexpr size_t kMaxRunning = 6;
constexpr size_t kMaxWaiting = 4;

BlockHasher MakeHasher() {
  return BlockHasher::FromSeed(HashAlgorithm::kXxhashCbor, "model").value();
}

int64_t SizeOf(const CacheRequest& request) { return static_cast<int64_t>(request.tokens.size()); }

}  // namespace

ModelRun::ModelRun(uint64_t seed, Coverage& coverage)
    : random_(seed), coverage_(coverage), config_(RandomConfig(random_)) {
  EventOptions events;
  events.enabled = !OneIn(random_, 20);
  if (OneIn(random_, 4)) events.hash_form = EventHashForm::kBytes;
  events.announce_once = OneIn(random_, 4);
  events.exact_spans = OneIn(random_, 4);
  events.name_cleared_tier = OneIn(random_, 4);
  auto cache = CacheManager::Create(config_, MakeHasher(), events);
  if (!cache.ok()) return;
  cache_ = std::move(cache).value();
  naive_ = std::make_unique<Cache>(config_, MakeHasher(), events);
  for (const GroupSpec& group : config_.groups) {
    aligned_ |= group.kind == SpecKind::kMamba && group.mamba_mode == MambaMode::kAlign;
  }
  ++coverage_.configs;
}

void ModelRun::Call() {
  ++coverage_.calls;
  const int64_t call = Pick(random_, 0, 23);
  if (call < 3) return NextStep();
  if (call < 4) return EvictSome();
  if (call < 5) return OneIn(random_, 8) ? ResetCache() : Finish();
  if (call < 6) return Preempt();
  if (call < 7) return LookUpOnly();
  if (call < 9) return RunCopies();
  if (call < 11) return Arrive();
  if (call < 15 && running_.size() < kMaxRunning) return Admit();
  Continue();
}

void ModelRun::End() {
  while (!running_.empty()) Finish();
  RunCopies();
  RunCopies();
  Compare();
  int64_t sinks = 0;
  for (const GroupSpec& group : config_.groups) sinks += group.sink_tokens / group.block_size;
  ASSERT_EQ(cache_->usage().free_blocks, config_.num_blocks - 1 - sinks);
}

ModelRun::Client& ModelRun::AnyOf(std::vector<Client>& clients) {
  return clients[static_cast<size_t>(Pick(random_, 0, static_cast<int64_t>(clients.size()) - 1))];
}

ModelRun::Client ModelRun::TakeFrom(std::vector<Client>& clients) {
  std::swap(AnyOf(clients), clients.back());
  Client client = std::move(clients.back());
  clients.pop_back();
  return client;
}

CacheRequest ModelRun::NewRequest() {
  CacheRequest request;
  request.id = std::to_string(next_id_++);
  // A prompt begins like one of two long prompts and ends with tokens of two values, so that
  // prefixes repeat.
  const int64_t shared = Pick(random_, 0, config_.max_model_len - 1);
  const int64_t own = OneIn(random_, 2) ? 0 : Pick(random_, 0, 40);
  const TokenId base = Pick(random_, 0, 1) * 1000;
  for (int64_t i = 0; i < shared; ++i) request.tokens.push_back(base + i % 100);
  for (int64_t i = 0; i < own; ++i) request.tokens.push_back(Pick(random_, 0, 1));
  if (request.tokens.empty()) request.tokens.push_back(base);
  const auto limit = static_cast<size_t>(config_.max_model_len);
  if (request.tokens.size() > limit) request.tokens.resize(limit);
  request.prompt_tokens = SizeOf(request);
  if (OneIn(random_, 12)) request.hash_inputs.cache_salt = "salt";
  if (OneIn(random_, 12)) {
    request.hash_inputs.lora_name = "adapter";
    request.lora_id = 3;
  }
  if (OneIn(random_, 12)) request.session_id = "session";
  if (OneIn(random_, 3)) request.will_not_return_after = Pick(random_, -10, shared + own);
  request.report_hits = OneIn(random_, 8);
  request.skip_prefix_lookup = OneIn(random_, 20);
  return request;
}

ModelRun::Client ModelRun::NextClient() {
  if (!waiting_.empty() && OneIn(random_, 2)) return TakeFrom(waiting_);
  Client client{NewRequest()};
  client.max_tokens =
      std::min(config_.max_model_len, client.request.prompt_tokens + Pick(random_, 0, 30));
  return client;
}

// With aligned states, steps of a prompt end on the grid or at the last state of the prompt.
int64_t ModelRun::StepOnGrid(const Client& client, int64_t from, int64_t step) const {
  const int64_t prompt = client.request.prompt_tokens;
  if (!aligned_ || from + step >= prompt) return step;
  const int64_t on_grid = FloorTo(from + step, naive_->grid().step);
  const int64_t last = naive_->LastState(prompt, naive_->grid().hash_block_size);
  if (on_grid > from) return on_grid - from;
  return (last > from ? last : prompt) - from;
}

AllocateArgs ModelRun::FirstStep(const Client& client, const PrefixHit& hit) {
  AllocateArgs args;
  args.hit = &hit;
  args.full_sequence_must_fit = OneIn(random_, 2);
  args.apply_watermark = OneIn(random_, 2);
  if (OneIn(random_, 4)) args.reserved_blocks = Pick(random_, 0, 5);
  if (OneIn(random_, 3)) args.encoder_tokens = Pick(random_, 0, 30);
  const int64_t missing = SizeOf(client.request) - hit.tokens;
  if (OneIn(random_, 6)) {
    args.external_tokens = FloorTo(Pick(random_, 0, missing - 1), naive_->grid().step);
  }
  const bool loads = args.external_tokens > 0;
  args.delay_caching = loads;
  if (loads && OneIn(random_, 2)) return args;
  const int64_t step = Pick(random_, 1, missing - args.external_tokens);
  args.new_tokens = StepOnGrid(client, hit.tokens + args.external_tokens, step);
  if (OneIn(random_, 6)) args.lookahead_tokens = Pick(random_, 1, 4);
  return args;
}

void ModelRun::Admit() {
  Client client = NextClient();
  const PrefixHit hit = LookUp(client.request);
  ASSERT_LT(hit.tokens, SizeOf(client.request));
  const AllocateArgs args = FirstStep(client, hit);
  if (::testing::Test::HasFailure()) return;
  if (!Allocate(client.request, args)) {
    waiting_.push_back(std::move(client));
    return;
  }
  coverage_.hits += hit.tokens > 0 ? 1 : 0;
  for (const GroupSpec& group : config_.groups) {
    coverage_.hits_inside_blocks += hit.tokens % group.block_size != 0 ? 1 : 0;
  }
  coverage_.external += args.external_tokens > 0 ? 1 : 0;
  client.computed = hit.tokens + args.external_tokens + args.new_tokens;
  client.arriving = args.delay_caching ? client.computed : 0;
  running_.push_back(std::move(client));
}

AllocateArgs ModelRun::LaterStep(const Client& client) {
  const int64_t known = SizeOf(client.request);
  AllocateArgs args;
  args.computed_tokens = client.computed;
  args.new_tokens = StepOnGrid(client, client.computed, Pick(random_, 1, known - client.computed));
  if (OneIn(random_, 4)) args.lookahead_tokens = Pick(random_, 1, 4);
  if (OneIn(random_, 4)) args.in_flight_tokens = Pick(random_, 0, client.computed);
  args.delay_caching = OneIn(random_, 10);
  // Drafts are part of a decode step. Rejected drafts are computed again.
  const bool decodes = args.computed_tokens + args.new_tokens == known;
  const int64_t drafts = Pick(random_, 1, 3);
  if (decodes && !aligned_ && known + drafts <= config_.max_model_len && OneIn(random_, 4)) {
    args.new_tokens += drafts;
  }
  return args;
}

void ModelRun::Continue() {
  if (running_.empty()) return;
  Client& client = AnyOf(running_);
  if (client.arriving > 0) return;
  if (client.computed == SizeOf(client.request)) {
    if (client.computed >= client.max_tokens) return;
    client.request.tokens.push_back(Pick(random_, 0, 1));
  }
  const AllocateArgs args = LaterStep(client);
  if (!Allocate(client.request, args)) return;
  client.computed = std::min(SizeOf(client.request), args.computed_tokens + args.new_tokens);
  client.arriving = args.delay_caching ? client.computed : 0;
}

void ModelRun::Arrive() {
  if (running_.empty()) return;
  Client& client = AnyOf(running_);
  if (client.arriving == 0) return;
  cache_->CacheBlocks(client.request, client.arriving);
  naive_->CacheBlocks(client.request, client.arriving);
  client.arriving = 0;
}

void ModelRun::Release(Client& client, bool ended) {
  cache_->Free(client.request, ended);
  naive_->Free(client.request, ended);
}

void ModelRun::Finish() {
  if (running_.empty()) return;
  Client client = TakeFrom(running_);
  Release(client, /*ended=*/true);
}

void ModelRun::Preempt() {
  if (running_.empty()) return;
  Client client = TakeFrom(running_);
  Release(client, /*ended=*/false);
  client.computed = client.arriving = 0;
  waiting_.push_back(std::move(client));
  if (waiting_.size() > kMaxWaiting) waiting_.erase(waiting_.begin());
}

void ModelRun::LookUpOnly() {
  Client fresh{NewRequest()};
  Client& client = running_.empty() || OneIn(random_, 2) ? fresh : AnyOf(running_);
  LookUp(client.request);
  CompareAnswers(client.request);
}

void ModelRun::NextStep() {
  cache_->BeginStep();
  naive_->BeginStep();
}

void ModelRun::EvictSome() {
  std::vector<BlockId> blocks;
  for (int64_t i = Pick(random_, 1, 3); i > 0; --i) {
    blocks.push_back(BlockId(static_cast<uint32_t>(Pick(random_, 0, config_.num_blocks - 1))));
  }
  ASSERT_TRUE(cache_->EvictBlocks(blocks).ok());
  for (const BlockId block : blocks) naive_->Evict(block.value);
}

void ModelRun::ResetCache() {
  while (!running_.empty() && OneIn(random_, 2)) Finish();
  if (OneIn(random_, 2)) RunCopies();
  const bool ok = cache_->ResetPrefixCache();
  ASSERT_EQ(ok, naive_->Reset());
  coverage_.resets += ok ? 1 : 0;
}

}  // namespace kvcast::naive
