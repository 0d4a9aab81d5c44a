// SPDX-License-Identifier: Apache-2.0
#include "python/src/owned_scheduler.h"

#include <set>

namespace kvcast::python {
namespace {

Status Invalid(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

}  // namespace

Result<CacheRequest*> OwnedScheduler::RequestOf(uint64_t id) {
  const auto it = requests_.find(id);
  if (it != requests_.end()) return it->second.get();
  return Status(StatusCode::kNotFound, "request_id: unknown request " + std::to_string(id));
}

Status OwnedScheduler::Add(uint64_t id, CacheRequest request,
                           const OffloadRequestOptions& options) {
  if (requests_.contains(id)) {
    return {StatusCode::kFailedPrecondition,
            "request_id: " + std::to_string(id) + " is in use until its copies have ended"};
  }
  auto owned = std::make_unique<CacheRequest>(std::move(request));
  hasher_.ExtendChain(owned->tokens, tokens_per_hash_, owned->hash_inputs, owned->chain);
  const Status added = scheduler_->AddRequest(OffloadRequestId(id), *owned, options);
  if (added.ok()) requests_.emplace(id, std::move(owned));
  return added;
}

Status OwnedScheduler::Append(uint64_t id, std::span<const TokenId> tokens) {
  const auto found = RequestOf(id);
  if (!found.ok()) return found.status();
  CacheRequest& request = **found;
  request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.end());
  hasher_.ExtendChain(request.tokens, tokens_per_hash_, request.hash_inputs, request.chain);
  return {};
}

Result<OffloadMatch> OwnedScheduler::Match(uint64_t id, int64_t local_tokens, int64_t now_ms) {
  const auto found = RequestOf(id);
  if (!found.ok()) return found.status();
  if (local_tokens < 0 || local_tokens > std::ssize((*found)->tokens)) {
    return Invalid("local_tokens: must be from 0 to the tokens of the request");
  }
  return scheduler_->MatchedTokens(OffloadRequestId(id), local_tokens, now_ms);
}

Status OwnedScheduler::UpdateAfterAlloc(uint64_t id, int64_t external_tokens,
                                        std::span<const std::vector<BlockId>> tables) {
  const auto found = RequestOf(id);
  if (!found.ok()) return found.status();
  if (tables.size() != groups_) return Invalid("tables: must have one list per group");
  return scheduler_->UpdateAfterAlloc(OffloadRequestId(id), external_tokens, tables);
}

Status OwnedScheduler::CheckStep(const OwnedStep& step) {
  std::set<uint64_t> seen;
  for (const auto& scheduled : step.scheduled) {
    const auto found = RequestOf(scheduled.request);
    if (!found.ok()) return found.status();
    const std::string request_name = "scheduled: request " + std::to_string(scheduled.request);
    if (!seen.insert(scheduled.request).second) return Invalid(request_name + " occurs twice");
    const int64_t tokens = std::ssize((*found)->tokens);
    const bool fits = scheduled.computed_tokens >= 0 && scheduled.scheduled_tokens >= 0 &&
                      scheduled.computed_tokens <= tokens &&
                      scheduled.scheduled_tokens <= tokens - scheduled.computed_tokens;
    if (!fits) return Invalid(request_name + " has " + std::to_string(tokens) + " tokens");
    if (!scheduled.new_blocks.empty() && scheduled.new_blocks.size() != groups_) {
      return Invalid(request_name + ": new_blocks must be empty, or have one list per group");
    }
  }
  for (const OffloadRequestId id : step.preempted) {
    if (const auto found = RequestOf(id.value); !found.ok()) return found.status();
  }
  for (const OffloadStep::Tail& tail : step.tails) {
    if (const auto found = RequestOf(tail.request.value); !found.ok()) return found.status();
    if (tail.group.value >= groups_) return Invalid("tails: the group does not exist");
    if (tail.boundary < 0) return Invalid("tails: the boundary must be at least 0");
  }
  return {};
}

Result<OffloadPlan> OwnedScheduler::BuildStep(const OwnedStep& owned) {
  if (const Status checked = CheckStep(owned); !checked.ok()) return checked;
  std::vector<OffloadStep::Scheduled> scheduled;
  for (const auto& one : owned.scheduled) {
    scheduled.push_back({.request = OffloadRequestId(one.request),
                         .computed_tokens = one.computed_tokens,
                         .scheduled_tokens = one.scheduled_tokens,
                         .starts = one.starts,
                         .new_blocks = one.new_blocks});
  }
  OffloadPlan plan = scheduler_->BuildStep(
      {.scheduled = scheduled, .preempted = owned.preempted, .tails = owned.tails});
  EraseUnborrowedRequests();
  return plan;
}

Result<OffloadArrivals> OwnedScheduler::OnCompletions(
    std::span<const OffloadCompletion> completions) {
  for (const OffloadCompletion& completion : completions) {
    if (completion.workers < 1 || completion.workers > num_workers_) {
      return Invalid("workers: must be from 1 to " + std::to_string(num_workers_));
    }
  }
  OffloadArrivals arrivals;
  scheduler_->OnCompletions(completions, arrivals);
  EraseUnborrowedRequests();
  return arrivals;
}

Result<bool> OwnedScheduler::Finish(uint64_t id, int64_t computed_tokens, bool aborted) {
  const auto found = RequestOf(id);
  if (!found.ok()) return found.status();
  if (computed_tokens < 0 || computed_tokens > std::ssize((*found)->tokens)) {
    return Invalid("computed_tokens: must be from 0 to the tokens of the request");
  }
  return scheduler_->RequestFinished(OffloadRequestId(id), computed_tokens, aborted);
}

void OwnedScheduler::EraseUnborrowedRequests() {
  std::erase_if(requests_, [this](const auto& entry) {
    return !scheduler_->InspectRequest(OffloadRequestId(entry.first));
  });
}

}  // namespace kvcast::python
