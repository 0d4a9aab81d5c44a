// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/offload/connector/scheduler_impl.h"

namespace kvcast {

// Looks up a request's chunks in the manager. If `wait` is false, a chunk that cannot be loaded yet
// counts as missing, and a chunk that another request loads is loaded once more. The chunk of a
// late load counts as missing.
class OffloadScheduler::Impl::Answers {
 public:
  Answers(Impl& scheduler, const Request& request, bool wait)
      : scheduler_(scheduler), request_(request), wait_(wait) {}

  LookupResult Chunk(size_t group, int64_t chunk) {
    const OffloadKey key = request_.ChunkKey(scheduler_.layout, group, chunk);
    const LookupResult result = scheduler_.calls.Lookup(key, request_.id);
    if (IsPresent(result) && NeedsRecord(group, key)) {
      scheduler_.writer.Describe(key, scheduler_.describer.Chunk(request_, group, chunk));
    }
    return Settled(key, result);
  }
  LookupResult Tail(size_t group, int64_t tokens) {
    const int64_t chunk_tokens = scheduler_.layout.groups[group].tokens_per_chunk;
    if (tokens % chunk_tokens == 0) return Chunk(group, tokens / chunk_tokens - 1);
    const OffloadKey key = request_.PrefixKey(scheduler_.layout, group, tokens);
    const LookupResult result = scheduler_.calls.Lookup(key, request_.id);
    if (IsPresent(result) && NeedsRecord(group, key)) {
      scheduler_.writer.Describe(key, scheduler_.describer.Tail(request_, group, tokens));
    }
    return Settled(key, result);
  }
  bool BeingLoaded(size_t group, int64_t chunk) const {
    return scheduler_.loading.IsInTime(request_.ChunkKey(scheduler_.layout, group, chunk));
  }

 private:
  bool IsPresent(LookupResult result) const {
    return result == LookupResult::kHit ||
           (result == LookupResult::kPending && scheduler_.is_v032());
  }
  bool NeedsRecord(size_t group, const OffloadKey& key) const {
    return scheduler_.describer.Describes(group) && !scheduler_.writer.Knows(key);
  }
  LookupResult Settled(const OffloadKey& key, LookupResult result) const {
    if (scheduler_.loading.IsLate(key)) return LookupResult::kMiss;
    const bool waits = result == LookupResult::kPending || result == LookupResult::kRetry;
    return waits && !wait_ ? LookupResult::kMiss : result;
  }

  Impl& scheduler_;
  const Request& request_;
  const bool wait_;
};

OffloadAnswer OffloadScheduler::Impl::Ask(const Request& request, int64_t local_tokens, bool wait) {
  const int64_t units = request.num_tokens() / layout.tokens_per_hash;
  OffloadQuestion question{.num_tokens = request.num_tokens(),
                           .prompt_tokens = request.request->prompt_tokens,
                           .local_tokens = local_tokens,
                           .num_hashes = std::min(std::ssize(request.request->chain), units)};
  if (is_v032()) question.max_load_tokens = request.options.max_load_tokens;
  Answers lookup(*this, request, wait);
  OffloadAnswers answers;
  answers.chunk = [&](size_t group, int64_t chunk) { return lookup.Chunk(group, chunk); };
  answers.tail = [&](size_t group, int64_t tokens) { return lookup.Tail(group, tokens); };
  if (wait && loading.HasInTime()) {
    answers.being_loaded = [&](size_t group, int64_t chunk) {
      return lookup.BeingLoaded(group, chunk);
    };
  }
  return LookupOffloaded(layout, question, answers);
}

OffloadMatch OffloadScheduler::Impl::Match(Request& request, int64_t local_tokens, int64_t now_ms) {
  request.last_match_ms = now_ms;
  request.local_tokens = local_tokens;
  request.tail_boundary.reset();
  request.within_step = false;
  for (offload::GroupState& group : request.groups) group.table.clear();
  if (!request.pending_since_ms) request.pending_since_ms = now_ms;
  const bool wait = config.compatible || now_ms - *request.pending_since_ms < config.max_pending_ms;
  // A job from before a preemption may still read or write the blocks of this request.
  if (!request.jobs.empty()) {
    if (wait) return {};
    ++stats.expired_waits;
    request.pending_since_ms.reset();
    return {0, std::nullopt};
  }

  OffloadAnswer answer{0, std::nullopt};
  const bool asks = !request.request->skip_prefix_lookup && !request.load_failed;
  if (asks) answer = Ask(request, local_tokens, wait);
  if (asks && !wait) ++stats.expired_waits;
  if (answer.tokens) request.pending_since_ms.reset();
  request.tail_boundary = answer.tail_boundary;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    request.groups[g].hit_chunks =
        (local_tokens + answer.tokens.value_or(0)) / layout.groups[g].tokens_per_chunk;
  }
  Touch(request);
  TouchTail(request);
  OffloadMatch match{answer.tokens, answer.tail_boundary};
  LoadWithinStep(request, local_tokens, match);
  return match;
}

int64_t OffloadScheduler::Impl::BytesToLoad(int64_t local_tokens, int64_t end) const {
  int64_t bytes = 0;
  for (const OffloadGroup& group : layout.groups) {
    ChunkRange chunks = NeededChunks(group, end);
    chunks.begin = std::max(chunks.begin, local_tokens / group.tokens_per_chunk);
    const int64_t slots = calls.manager().slots_per_chunk(group.index);
    bytes += std::max<int64_t>(chunks.end - chunks.begin, 0) * slots;
  }
  return bytes * calls.manager().slot_bytes();
}

void OffloadScheduler::Impl::LoadWithinStep(Request& request, int64_t local_tokens,
                                            OffloadMatch& match) const {
  const int64_t tokens = match.tokens.value_or(0);
  const int64_t left = config.sync_load_budget_bytes - sync_bytes;
  if (tokens == 0 || BytesToLoad(local_tokens, local_tokens + tokens) > left) return;
  // The step must compute at least one token.
  match.tokens = std::min(tokens, request.num_tokens() - 1 - local_tokens);
  match.within_step = request.within_step = *match.tokens > 0;
}

void OffloadScheduler::Impl::Touch(const Request& request) {
  if (is_v032()) return;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const OffloadGroup& group = layout.groups[g];
    const int64_t end = request.NumChunks(group);
    touched.clear();
    for (int64_t chunk = FirstTouchedChunk(group, request.groups[g].hit_chunks); chunk < end;
         ++chunk) {
      touched.push_back(request.ChunkKey(layout, g, chunk));
    }
    calls.Touch(request.id, touched);
  }
}

void OffloadScheduler::Impl::TouchTail(const Request& request) {
  if (!request.tail_boundary || is_v032()) return;
  touched.clear();
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    touched.push_back(request.TailKey(layout, g, *request.tail_boundary));
  }
  calls.Touch(request.id, touched);
}

}  // namespace kvcast
