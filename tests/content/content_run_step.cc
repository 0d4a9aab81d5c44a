// The part of a ContentRun step after scheduling, with its checks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/content/content_run.h"

namespace kvcast::content {

namespace {

constexpr size_t kMaxRequests = 12;
constexpr int64_t kStepMs = 10;

}  // namespace

void ContentRun::SubmitStep() {
  std::vector<RequestWork> work;
  for (const Scheduled& entry : scheduled_) {
    Request& request = *entry.request;
    const int64_t end = request.computed + entry.tokens;
    RequestWork& part = work.emplace_back();
    part.request_name = request.cache.id;
    part.computed = request.computed;
    part.end = end;
    part.prefix.assign(request.prefix.begin(), request.prefix.begin() + end);
    for (uint32_t g = 0; g < config_.groups.size(); ++g) {
      const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
      part.tables.emplace_back(table.begin(), table.end());
    }
  }
  tier_->Step(scheduled_, [this] {
    stream_.Submit([this, blocks = std::exchange(to_poison_, {})] {
      for (const BlockId block : blocks) memory_.Poison(block);
    });
  });
  stream_.Submit([this, work] { computation_.Begin(work); });
  stream_.Submit([this, work = std::move(work)] { computation_.End(work); });
  tier_->AfterStep();
}

void ContentRun::LetTimePass() {
  for (int64_t i = Random(6); i > 0; --i) {
    tier_->copies().Progress();
    if (Chance(0.5)) stream_.RunOne();
  }
  // Several steps may be in flight. This call ends all of them.
  if (Chance(0.3)) stream_.RunAll();
}

// The blocks stay allocated under the old request id. The request continues under a new id.
void ContentRun::KeepBlocks(Request& request, OffloadJobId job) {
  if (config_.fault == Fault::kFreedWhenLate) return;
  kept_.emplace(job, request.cache);
  request.cache.id += "+";
}

void ContentRun::Arrive(Request& request, const Arrival& arrival) {
  if (request.state != Request::State::kLoading) return;  // ended, and its blocks were not kept
  const bool success = arrival.kind == Arrival::Kind::kLoaded;
  if (success && !request.ended) {
    counts_.loaded_tokens += request.load_end - request.computed;
    cache_->CacheBlocks(request.cache, request.load_end);
    request.computed = std::min(request.load_end, std::ssize(request.cache.tokens) - 1);
    request.state = Request::State::kLoaded;
    return;
  }
  // After a failed load, the blocks of the GPU hit are still valid, and the request may continue
  // with them. A model with a window must not continue: the table has no blocks for the tokens that
  // the window would skip after the load.
  const bool failed = arrival.kind == Arrival::Kind::kFailed;
  request.load_failed |= !success;
  if (!request.ended && failed && request.computed > 0 && all_full_ && Chance(0.5)) {
    request.state = Request::State::kLoaded;
    return;
  }
  if (!request.ended && failed) tier_->Preempt(request);
  if (arrival.kind == Arrival::Kind::kLate) KeepBlocks(request, arrival.job);
  cache_->Free(request.cache);
  request.state = Request::State::kWaiting;
  request.computed = 0;
}

void ContentRun::TakeArrivals() {
  std::vector<Arrival> arrivals;
  tier_->TakeEnded(now_ms_, arrivals);
  for (const Arrival& arrival : arrivals) {
    if (arrival.kind == Arrival::Kind::kReleased) {
      const auto kept = kept_.extract(arrival.job);
      if (!kept.empty()) cache_->Free(kept.mapped());
      continue;
    }
    const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const auto& request) {
      return request->id == arrival.request;
    });
    if (found != requests_.end()) Arrive(**found, arrival);
  }
}

void ContentRun::CheckChunk(const HostChunk& chunk) {
  const size_t group = chunk.group.value;
  const int64_t size = config_.groups[group].block_size;
  const auto blocks = std::ssize(chunk.blocks);
  const std::vector<uint64_t> codes = registry_.Last(chunk.digest, blocks * size);
  if (std::ssize(codes) != blocks * size) {
    ++findings_.in_host;
    return;
  }
  for (int64_t b = chunk.only_last ? blocks - 1 : 0; b < blocks; ++b) {
    ++counts_.checked_blocks;
    bool right = true;
    for (int64_t cell = 0; cell < memory_.cells(group); ++cell) {
      const bool state = memory_.is_state(group);
      const int64_t token = b * size + (state ? size - 1 : cell);
      const auto bytes = std::span(chunk.blocks[static_cast<size_t>(b)])
                             .subspan(tier_->CellOffset(group, cell), memory_.cell_bytes(group));
      right &=
          CellHolds(bytes, CellCode(group, codes[static_cast<size_t>(token)], state ? cell : 0));
    }
    if (right) continue;
    ++findings_.in_host;
    if (!findings_.first.empty()) continue;
    findings_.first = "in host memory: step " + std::to_string(counts_.steps) + ", group " +
                      std::to_string(group) + ", block " + std::to_string(b) +
                      " of the chunk in slot " + std::to_string(chunk.first_slot.value);
  }
}

void ContentRun::CheckHost() {
  for (const HostChunk& chunk : tier_->Readable()) CheckChunk(chunk);
}

void ContentRun::Step(bool add) {
  ++counts_.steps;
  now_ms_ += kStepMs;
  if (add && requests_.size() < kMaxRequests && Chance(0.5)) AddRequest();
  if (add) Disturb();
  budget_ = kBudget;
  cache_->BeginStep();
  ScheduleRunning();
  AdmitWaiting();
  EXPECT_TRUE(cache_->TakeCopies().empty());
  SubmitStep();
  SampleOrFinish();
  LetTimePass();
  TakeArrivals();
  TakeEvents();
  if (counts_.steps % 8 == 0) {
    CheckHost();
    if (config_.fault == Fault::kNone) {
      EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants().ToString();
      EXPECT_TRUE(cache_->CheckInvariants().ok()) << cache_->CheckInvariants().ToString();
    }
  }
  std::erase_if(requests_, [&](const auto& request) {
    return request->ended && request->state == Request::State::kWaiting && !tier_->Knows(*request);
  });
}

std::string ContentRun::TextOf(const Request& request) const {
  constexpr const char* kStates[] = {"waiting", "loading", "loaded", "running"};
  std::string text = "\n  " + request.cache.id + (request.ended ? " ended, " : " ") +
                     kStates[static_cast<size_t>(request.state)] + ", computed " +
                     std::to_string(request.computed) + " of " +
                     std::to_string(request.cache.tokens.size()) + ", blocks";
  for (uint32_t g = 0; g < config_.groups.size(); ++g) {
    text += " " + std::to_string(cache_->BlockTable(request.cache, GroupIdx(g)).size());
  }
  return text + (tier_->Knows(request) ? ", known to the tier" : "");
}

void ContentRun::CheckDrained() {
  std::string unfinished;
  for (const auto& request : requests_) unfinished += TextOf(*request);
  EXPECT_TRUE(requests_.empty()) << "after " << counts_.steps
                                 << " steps, these requests have not ended:" << unfinished;
  EXPECT_TRUE(kept_.empty()) << "blocks of a late load are never freed";
  EXPECT_TRUE(tier_->idle()) << "a job, a fence or a reference was left";
  EXPECT_EQ(cache_->usage().free_blocks, cache_->usage().total_blocks) << "a pin was left";
  EXPECT_TRUE(tier_->CheckInvariants().ok()) << tier_->CheckInvariants().ToString();
  EXPECT_TRUE(cache_->CheckInvariants().ok()) << cache_->CheckInvariants().ToString();
}

void ContentRun::Run() {
  while (counts_.operations() < config_.operations && !::testing::Test::HasFailure()) Step(true);
  for (int i = 0; i < 2000 && !requests_.empty(); ++i) {
    Step(false);
    if (config_.threads) tier_->copies().EndAll();  // because no step waits for a load
  }
  for (int i = 0; i < 3; ++i) {  // the steps return, submit and end the last stores
    Step(false);
    tier_->copies().EndAll();
    TakeArrivals();
  }
  stream_.RunAll();
  CheckHost();
  CheckDrained();
}

}  // namespace kvcast::content
