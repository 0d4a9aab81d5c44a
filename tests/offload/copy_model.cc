// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/copy_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace kvcast::offload {

namespace {

constexpr int64_t kUnit = 4;  // tokens a hash, and in the smallest block
constexpr int64_t kBudget = 48;
constexpr size_t kMaxRunning = 5;
constexpr size_t kMaxRequests = 12;
constexpr int64_t kStepMs = 10;

GroupSpec Full(int64_t block_size = 4) { return {.block_size = block_size}; }
GroupSpec Window(int64_t window, int64_t block_size = 4) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
GroupSpec Chunked(int64_t chunk) {
  return {.kind = SpecKind::kChunkedLocalAttention, .block_size = 4, .chunk_size = chunk};
}

BlockHasher NewHasher() {
  return BlockHasher::FromSeed(HashAlgorithm::kXxhashCbor, "model").value();
}

}  // namespace

CopyModelConfig CopyModelMix(int number) {
  switch (number) {
    case 0:
      return {.groups = {Full()}};
    case 1:
      return {.groups = {Full(), Window(8)}, .chunk_bytes = {8192, 4096}};
    case 2:
      return {.groups = {Full(), Window(10)}, .blocks_per_chunk = 3};
    case 3:
      return {.groups = {Full(16), Window(24, 8), Window(6)}, .num_blocks = 160};
    case 4:
      return {.groups = {Full(), Chunked(16)}, .blocks_per_chunk = 2};
    case 5:
      return {.groups = {Window(12)}, .num_blocks = 60, .capacity_pages = 40};
    default:
      return {.groups = {Full()}, .blocks_per_chunk = 3, .num_blocks = 60, .capacity_pages = 12};
  }
}
CopyModel::CopyModel(CopyModelConfig config)
    : config_(std::move(config)), random_(config_.seed), hasher_(NewHasher()) {
  CacheConfig cache;
  cache.groups = config_.groups;
  cache.num_blocks = config_.num_blocks;
  cache.max_model_len = 1024;
  cache.max_in_flight_tokens = kBudget;
  cache.hash_block_size = kUnit;
  auto manager = CacheManager::Create(cache, NewHasher());
  EXPECT_TRUE(manager.ok()) << manager.status().ToString();
  cache_ = std::move(manager).value();

  OffloadSchedulerConfig offload;
  offload.layout = {.groups = config_.groups,
                    .tokens_per_hash = kUnit,
                    .blocks_per_chunk = config_.blocks_per_chunk};
  offload.memory.chunk_bytes = config_.chunk_bytes;
  offload.memory.chunk_bytes.resize(config_.groups.size(), 4096);
  offload.memory.capacity_bytes = config_.capacity_pages * 4096;
  offload.prompt_only = false;
  offload.max_pending_ms = 3 * kStepMs;
  offload.compatible = config_.compatible;
  auto scheduler = OffloadScheduler::Create(offload);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status().ToString();
  scheduler_ = std::move(scheduler).value();
  int64_t largest = 0;
  for (const GroupSpec& group : config_.groups) largest = std::max(largest, group.block_size);
  gpu_.assign(static_cast<size_t>(config_.num_blocks), Cells(static_cast<size_t>(largest), 0));
}

CopyModel::~CopyModel() = default;

CopyModel::Request* CopyModel::Find(OffloadRequestId id) {
  for (const auto& request : requests_) {
    if (request->id == id) return request.get();
  }
  return nullptr;
}

void CopyModel::Grow(Request& request, int64_t tokens) {
  for (int64_t i = 0; i < tokens; ++i) request.cache.tokens.push_back(next_token_++);
}

void CopyModel::AddRequest() {
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
  request->known_blocks.assign(config_.groups.size(), 0);
  hasher_.ExtendChain(request->cache.tokens, kUnit, {}, request->cache.chain);
  EXPECT_TRUE(scheduler_->AddRequest(request->id, request->cache).ok());
  requests_.push_back(std::move(request));
}

void CopyModel::NoteNewBlocks(Request& request) {
  request.new_blocks.assign(config_.groups.size(), {});
  for (uint32_t g = 0; g < config_.groups.size(); ++g) {
    const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
    size_t& known = request.known_blocks[g];
    request.new_blocks[g].assign(table.begin() + static_cast<ptrdiff_t>(known), table.end());
    known = table.size();
  }
}

void CopyModel::Preempt(Request& request) {
  cache_->Free(request.cache);
  request.state = State::kWaiting;
  request.computed = 0;
  request.starts = true;
  std::fill(request.known_blocks.begin(), request.known_blocks.end(), 0);
  preempted_.push_back(request.id);
  std::erase_if(scheduled_, [&](const Scheduled& entry) { return entry.request == &request; });
  ++counts_.preemptions;
}

bool CopyModel::ScheduleTokens(Request& request, const PrefixHit* hit) {
  const int64_t left = std::ssize(request.cache.tokens) - request.computed;
  const int64_t tokens = std::min(left, budget_);
  if (tokens <= 0) return false;
  AllocateArgs args;
  args.new_tokens = tokens;
  args.hit = hit;
  if (hit == nullptr) args.computed_tokens = request.computed;
  if (!cache_->AllocateSlots(request.cache, args)) return false;
  budget_ -= tokens;
  NoteNewBlocks(request);
  scheduled_.push_back({&request, tokens});
  request.state = State::kRunning;
  return true;
}

void CopyModel::ScheduleRunning() {
  std::vector<Request*> running;
  for (const auto& request : requests_) {
    if (request->state == State::kRunning) running.push_back(request.get());
  }
  while (!running.empty() && budget_ > 0) {
    Request* request = running.front();
    if (ScheduleTokens(*request, nullptr)) {
      running.erase(running.begin());
      continue;
    }
    Preempt(*running.back());
    running.pop_back();
  }
}

bool CopyModel::StartLoad(Request& request, const PrefixHit& hit, int64_t external) {
  AllocateArgs args;
  args.external_tokens = external;
  args.hit = &hit;
  args.delay_caching = true;
  if (!cache_->AllocateSlots(request.cache, args)) return false;
  std::vector<std::vector<BlockId>> tables;
  for (uint32_t g = 0; g < config_.groups.size(); ++g) {
    const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
    tables.emplace_back(table.begin(), table.end());
  }
  const Status status = scheduler_->UpdateAfterAlloc(request.id, external, tables);
  EXPECT_TRUE(status.ok()) << status.ToString();
  request.state = State::kLoading;
  request.computed = hit.tokens;
  request.load_end = hit.tokens + external;
  return true;
}

OffloadMatch CopyModel::Lookup(Request& request, const PrefixHit& hit) {
  // Its own copies, or one that failed, say more than the events.
  const bool free = !request.load_failed && scheduler_->InspectRequest(request.id)->jobs.empty();
  const OffloadMatch match = scheduler_->MatchedTokens(request.id, hit.tokens, now_ms_);
  if (!config_.on_lookup) return match;
  std::vector<Event> events = cache_->TakeEvents();
  for (Event& event : scheduler_->TakeEvents()) events.push_back(std::move(event));
  config_.on_events(std::move(events));
  if (free && match.tokens) config_.on_lookup({request.cache, hit.tokens, *match.tokens});
  return match;
}

void CopyModel::AdmitWaiting() {
  size_t running = 0;
  for (const auto& request : requests_) running += request->state != State::kWaiting;
  for (const auto& entry : requests_) {
    Request& request = *entry;
    if (budget_ <= 0 || running >= kMaxRunning) return;
    if (request.state == State::kLoaded) {
      if (!ScheduleTokens(request, nullptr)) return;
      continue;
    }
    if (request.state != State::kWaiting || request.aborted) continue;
    const bool was_preempted =
        std::find(preempted_.begin(), preempted_.end(), request.id) != preempted_.end();
    if (was_preempted && Chance(0.5)) continue;
    const PrefixHit hit = cache_->GetComputedBlocks(request.cache);
    const OffloadMatch match = Lookup(request, hit);
    if (!match.tokens) continue;
    request.starts = true;
    std::fill(request.known_blocks.begin(), request.known_blocks.end(), 0);
    request.computed = hit.tokens;
    const bool done =
        *match.tokens > 0 ? StartLoad(request, hit, *match.tokens) : ScheduleTokens(request, &hit);
    if (!done) {
      request.computed = 0;
      return;
    }
    ++running;
  }
}

void CopyModel::Disturb() {
  if (Chance(config_.reset_rate)) {
    EXPECT_TRUE(scheduler_->Reset().ok());
    ++counts_.resets;
  }
  if (Chance(config_.reset_rate)) {
    for (const auto& request : requests_) {
      if (request->state == State::kRunning) Preempt(*request);
    }
    cache_->ResetPrefixCache();
  }
  if (Chance(0.03) && !requests_.empty()) {
    Request& request = *requests_[static_cast<size_t>(Random(std::ssize(requests_)))];
    if (!request.aborted) Finish(request, true);
  }
}

void CopyModel::Finish(Request& request, bool aborted) {
  const bool loading = scheduler_->RequestFinished(request.id, request.computed, aborted);
  EXPECT_EQ(loading, request.state == State::kLoading || false) << "a load, and nobody knows";
  request.aborted = true;
  past_.push_back(request.cache.tokens);
  if (past_.size() > 6) past_.erase(past_.begin());
  if (!loading) cache_->Free(request.cache);
  if (request.state != State::kLoading) request.state = State::kWaiting;
  std::erase_if(scheduled_, [&](const Scheduled& entry) { return entry.request == &request; });
  ++counts_.finished;
}

void CopyModel::SampleOrFinish() {
  for (const Scheduled& entry : std::exchange(scheduled_, {})) {
    Request& request = *entry.request;
    if (request.computed < std::ssize(request.cache.tokens)) continue;
    Grow(request, 1);
    hasher_.ExtendChain(request.cache.tokens, kUnit, {}, request.cache.chain);
    if (--request.outputs_left == 0) Finish(request, false);
  }
}

void CopyModel::Step(bool add) {
  now_ms_ += kStepMs;
  if (add && requests_.size() < kMaxRequests && Chance(0.4)) AddRequest();
  Disturb();
  budget_ = kBudget;
  cache_->BeginStep();
  for (const auto& request : requests_) {
    uint64_t prefix = request->prefix.empty() ? 7 : request->prefix.back();
    for (size_t i = request->prefix.size(); i < request->cache.tokens.size(); ++i) {
      prefix = (prefix * 1099511628211u + static_cast<uint64_t>(request->cache.tokens[i])) >> 6;
      request->prefix.push_back(prefix);
    }
  }
  ScheduleRunning();
  AdmitWaiting();
  Work();
  Compute();
  SampleOrFinish();
  EndCopies(false);
  if (!config_.on_events) {
    scheduler_->TakeEvents();
    cache_->TakeEvents();
  }
  EXPECT_TRUE(scheduler_->manager().CheckInvariants().ok());
  EXPECT_TRUE(cache_->CheckInvariants().ok());
  std::erase_if(requests_, [&](const auto& request) {
    return request->aborted && request->state == State::kWaiting &&
           !scheduler_->InspectRequest(request->id);
  });
}

CopyModelCounts CopyModel::Run() {
  for (int i = 0; i < config_.steps; ++i) Step(true);
  for (int i = 0; i < 2000 && !requests_.empty(); ++i) Step(false);
  EXPECT_TRUE(requests_.empty()) << requests_.size() << " requests never end";
  Step(false);
  EndCopies(true);
  EXPECT_EQ(scheduler_->num_requests(), 0);
  EXPECT_TRUE(scheduler_->FencedBlocks().empty());
  EXPECT_EQ(cache_->usage().free_blocks, cache_->usage().total_blocks);
  return counts_;
}

}  // namespace kvcast::offload
