// SPDX-License-Identifier: Apache-2.0
#include "tests/content/content_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvcast::content {

namespace {

constexpr size_t kMaxRunning = 5;

BlockHasher NewHasher() {
  return BlockHasher::FromSeed(HashAlgorithm::kXxhashCbor, "content").value();
}

std::unique_ptr<CacheManager> NewCache(const RunConfig& config) {
  CacheConfig cache;
  cache.groups = config.groups;
  cache.num_blocks = config.num_blocks;
  cache.max_model_len = 1024;
  cache.max_in_flight_tokens = 48;
  cache.hash_block_size = config.hash_block_size;
  const bool announces = config.on_events != nullptr;
  auto manager = CacheManager::Create(cache, NewHasher(), {.enabled = announces});
  EXPECT_TRUE(manager.ok()) << manager.status().ToString();
  return std::move(manager).value();
}

}  // namespace

ContentRun::ContentRun(RunConfig config)
    : config_(std::move(config)),
      random_(config_.seed),
      cache_(NewCache(config_)),
      hasher_(NewHasher()),
      memory_(config_.groups, config_.cell_bytes, config_.num_blocks),
      computation_(config_.groups, memory_, findings_, counts_) {
  EXPECT_FALSE(PartialHitsEnabled(cache_->config())) << "copies of blocks are not modelled";
  for (const GroupSpec& group : config_.groups) {
    all_full_ &= IsFullKind(group.kind);
    if (group.mamba_mode == MambaMode::kAlign) grid_ = cache_->config().scheduler_block_size;
  }
  const TierParts parts{config_, *cache_, memory_, stream_, counts_};
  tier_ = config_.tier == TierKind::kConnector ? MakeConnectorTier(parts) : MakeSimpleTier(parts);
}

ContentRun::~ContentRun() = default;

void ContentRun::Grow(Request& request, int64_t tokens) {
  for (int64_t i = 0; i < tokens; ++i) request.cache.tokens.push_back(next_token_++);
  uint64_t prefix = request.prefix.empty() ? 7 : request.prefix.back();
  for (size_t i = request.prefix.size(); i < request.cache.tokens.size(); ++i) {
    prefix = (prefix ^ static_cast<uint64_t>(request.cache.tokens[i])) * 0x9E3779B97F4A7C15u;
    prefix ^= prefix >> 32;
    request.prefix.push_back(prefix);
  }
  hasher_.ExtendChain(request.cache.tokens, config_.hash_block_size, {}, request.cache.chain);
  registry_.Add(request.cache.chain, request.prefix, config_.hash_block_size);
}

void ContentRun::AddRequest() {
  auto request = std::make_unique<Request>();
  request->id = OffloadRequestId(next_id_++);
  request->cache.id = std::to_string(request->id.value);
  if (!past_.empty() && Chance(0.8)) {
    const auto& source = past_[static_cast<size_t>(Random(std::ssize(past_)))];
    const int64_t shared = 1 + Random(std::ssize(source));
    request->cache.tokens.assign(source.begin(), source.begin() + shared);
  }
  Grow(*request, 1 + Random(40));
  request->cache.prompt_tokens = std::ssize(request->cache.tokens);
  request->outputs_left = 1 + Random(20);
  if (!cache_->CanEverFit(request->cache.prompt_tokens + request->outputs_left)) return;
  request->known_blocks.assign(config_.groups.size(), 0);
  request->clean_blocks.assign(config_.groups.size(), 0);
  tier_->Add(*request);
  requests_.push_back(std::move(request));
  ++counts_.requests;
}

void ContentRun::Disturb() {
  if (Chance(0.01)) {
    tier_->Reset();
    ++counts_.host_resets;
  }
  if (Chance(0.01)) ResetGpu();
  if (Chance(0.05)) EvictSome();
  if (Chance(0.03) && !requests_.empty()) {
    Request& request = *requests_[static_cast<size_t>(Random(std::ssize(requests_)))];
    if (!request.ended) {
      Finish(request, true);
      ++counts_.aborts;
    }
  }
}

void ContentRun::ResetGpu() {
  if (Chance(0.5)) {
    tier_->copies().EndAll();
    TakeArrivals();
  }
  for (const auto& request : requests_) {
    const bool loaded = request->state == Request::State::kLoaded;
    if (loaded || request->state == Request::State::kRunning) Preempt(*request);
  }
  counts_.gpu_resets += cache_->ResetPrefixCache();
}

void ContentRun::EvictSome() {
  std::vector<BlockId> blocks;
  const int64_t most = Chance(0.2) ? config_.num_blocks : 8;
  for (int64_t i = 1 + Random(most); i > 0; --i) {
    blocks.push_back(BlockId(static_cast<uint32_t>(1 + Random(config_.num_blocks - 1))));
  }
  EXPECT_TRUE(cache_->EvictBlocks(blocks).ok());
  ++counts_.evictions;
}

void ContentRun::Preempt(Request& request) {
  tier_->Preempt(request);
  cache_->Free(request.cache);
  request.state = Request::State::kWaiting;
  request.computed = 0;
  std::erase_if(scheduled_, [&](const Scheduled& entry) { return entry.request == &request; });
  ++counts_.preemptions;
}

void ContentRun::Finish(Request& request, bool aborted) {
  const bool keeps = tier_->Finish(request, aborted);
  EXPECT_TRUE(!keeps || request.state == Request::State::kLoading);
  request.ended = true;
  past_.push_back(request.cache.tokens);
  if (past_.size() > 12) past_.erase(past_.begin());
  if (keeps) return;
  cache_->Free(request.cache);
  request.state = Request::State::kWaiting;
}

// The engine keeps states only at the ends of steps. Steps therefore end at positions where a hit
// may end.
int64_t ContentRun::TokensOfStep(const Request& request) const {
  const int64_t known = std::ssize(request.cache.tokens);
  const int64_t end = std::min(known, request.computed + budget_);
  const int64_t last = known / grid_ * grid_;
  if (end < last) return std::max<int64_t>(0, end / grid_ * grid_ - request.computed);
  return (request.computed < last ? last : end) - request.computed;
}

// Collects two sets of blocks: the blocks that the table gained since the previous report to the
// tier, and the blocks that the table gained since new blocks were last filled with garbage.
void ContentRun::NoteBlocks(Request& request) {
  request.new_blocks.assign(config_.groups.size(), {});
  for (uint32_t g = 0; g < config_.groups.size(); ++g) {
    const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
    request.new_blocks[g].assign(table.begin() + static_cast<ptrdiff_t>(request.known_blocks[g]),
                                 table.end());
    for (size_t i = request.clean_blocks[g]; i < table.size(); ++i) to_poison_.push_back(table[i]);
    request.known_blocks[g] = request.clean_blocks[g] = table.size();
  }
}

bool ContentRun::ScheduleTokens(Request& request, const PrefixHit* hit) {
  AllocateArgs args;
  args.new_tokens = TokensOfStep(request);
  args.hit = hit;
  if (hit == nullptr) args.computed_tokens = request.computed;
  if (!cache_->AllocateSlots(request.cache, args)) return false;
  budget_ -= args.new_tokens;
  NoteBlocks(request);
  scheduled_.push_back({&request, args.new_tokens});
  ++(std::ssize(request.cache.tokens) - request.computed == 1 ? counts_.decodes : counts_.prefills);
  request.state = Request::State::kRunning;
  return true;
}

void ContentRun::ScheduleRunning() {
  std::vector<Request*> running;
  for (const auto& request : requests_) {
    if (request->state == Request::State::kRunning) running.push_back(request.get());
  }
  while (!running.empty()) {
    Request* request = running.front();
    if (TokensOfStep(*request) <= 0 || ScheduleTokens(*request, nullptr)) {
      running.erase(running.begin());
      continue;
    }
    Preempt(*running.back());
    running.pop_back();
  }
}

bool ContentRun::StartLoad(Request& request, const PrefixHit& hit, int64_t external,
                           bool promised) {
  AllocateArgs args;
  args.external_tokens = external;
  args.hit = &hit;
  args.delay_caching = true;
  if (!cache_->AllocateSlots(request.cache, args)) return false;
  if (!tier_->AfterAlloc(request, external)) {
    EXPECT_FALSE(promised && config_.fault == Fault::kNone) << "a promised load was refused";
    ++counts_.refused_loads;
    cache_->Free(request.cache);
    return TokensOfStep(request) <= 0 || ScheduleTokens(request, &hit);
  }
  NoteBlocks(request);
  // The tier gets the table when the request runs.
  std::fill(request.known_blocks.begin(), request.known_blocks.end(), 0);
  request.state = Request::State::kLoading;
  request.load_end = hit.tokens + external;
  return true;
}

std::optional<int64_t> ContentRun::Lookup(Request& request, const PrefixHit& hit) {
  const bool free = tier_->IsFree(request);
  const std::optional<int64_t> external = tier_->Match(request, hit.tokens, now_ms_);
  if (!config_.on_events) return external;
  TakeEvents();
  if (config_.on_lookup && free && external) {
    config_.on_lookup({request.cache, hit.tokens, *external});
  }
  return external;
}

void ContentRun::TakeEvents() {
  std::vector<Event> events = cache_->TakeEvents();
  for (Event& event : tier_->TakeEvents()) events.push_back(std::move(event));
  if (config_.on_events) config_.on_events(std::move(events));
}

bool ContentRun::Admit(Request& request) {
  if (request.state == Request::State::kLoaded) {
    return TokensOfStep(request) <= 0 || ScheduleTokens(request, nullptr);
  }
  const PrefixHit hit = cache_->GetComputedBlocks(request.cache);
  std::optional<int64_t> external = Lookup(request, hit);
  if (!external) return true;
  const std::optional<int64_t> matched = external;
  if (*external > 1 && Chance(0.1)) external = 1 + Random(*external);
  request.starts = true;
  request.computed = hit.tokens;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    request.known_blocks[g] = 0;
    request.clean_blocks[g] = hit.blocks[g].size();
  }
  bool room = true;
  if (*external > 0) {
    room = StartLoad(request, hit, *external, external == matched);
  } else if (TokensOfStep(request) > 0) {
    room = ScheduleTokens(request, &hit) && tier_->AfterAlloc(request, 0);
  }
  if (request.state == Request::State::kWaiting) request.computed = 0;
  return room;
}

// No request runs, so only loaded requests can free blocks for `first`.
void ContentRun::PreemptLoaded(const Request& first) {
  const auto last = std::find_if(requests_.rbegin(), requests_.rend(), [&](const auto& request) {
    return request->state == Request::State::kLoaded && request.get() != &first;
  });
  if (last != requests_.rend()) Preempt(**last);
}

void ContentRun::AdmitWaiting() {
  for (const auto& entry : requests_) {
    size_t running = 0;
    for (const auto& request : requests_) {
      running += request->state != Request::State::kWaiting;
    }
    Request& request = *entry;
    const bool loaded = request.state == Request::State::kLoaded;
    const bool waits = request.state == Request::State::kWaiting && !request.ended;
    if (!loaded && !waits) continue;
    if (budget_ <= 0) return;
    if (waits && (running >= kMaxRunning || Chance(0.1))) continue;
    if (!Admit(request)) {
      if (loaded && scheduled_.empty()) PreemptLoaded(request);
      return;
    }
  }
}

void ContentRun::SampleOrFinish() {
  for (const Scheduled& entry : std::exchange(scheduled_, {})) {
    Request& request = *entry.request;
    request.computed += entry.tokens;
    if (request.computed < std::ssize(request.cache.tokens)) continue;
    Grow(request, 1);
    if (--request.outputs_left > 0) continue;
    Finish(request, false);
    ++counts_.finished;
  }
}

}  // namespace kvcast::content
