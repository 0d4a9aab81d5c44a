// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/offload/connector/scheduler_impl.h"

namespace kvcast {

OffloadJobId OffloadScheduler::Impl::AddJob(Request& request, Job job) {
  const OffloadJobId id = next_job;
  ++next_job.value;
  job.pending_workers = config.num_workers;
  for (const BlockId block : job.fenced_from_start) fences.Add(block, id);
  if (job.store && request.finished) {
    // The request's blocks are already free, and this step may have given them to another request.
    for (const BlockId block : job.blocks) {
      fences.Add(block, id);
      if (allocated.IsInStep(block)) flush.insert(id);
    }
  }
  request.jobs.push_back(id);
  jobs.emplace(id, std::move(job));
  return id;
}

void OffloadScheduler::Impl::FenceFinished(const Request& request) {
  for (const OffloadJobId id : request.jobs) {
    const Job& job = jobs.at(id);
    if (!job.store) continue;
    for (const BlockId block : job.blocks) fences.Add(block, id);
  }
}

void OffloadScheduler::Impl::ForgetIfDone(OffloadRequestId id) {
  const Request* request = Find(id);
  if (request != nullptr && request->closed && request->jobs.empty()) requests.erase(id);
}

void OffloadScheduler::Impl::FailStoresBasedOn(const Job& load) {
  for (auto& [id, job] : jobs) {
    if (job.store && job.request == load.request) job.failed = true;
  }
  Request* request = Find(load.request);
  if (request == nullptr) return;
  request->final_tokens = std::min(request->final_tokens, request->local_tokens);
}

void OffloadScheduler::Impl::EndLoad(OffloadJobId id, const Job& job, OffloadArrivals& arrivals) {
  loading_bytes -= job.bytes;
  if (job.given_up) {
    arrivals.released.push_back(id);
  } else if (!job.within_step) {
    (job.failed ? arrivals.failed : arrivals.loaded).push_back(job.request);
  } else if (job.failed) {
    FailStoresBasedOn(job);
    const Request* request = Find(job.request);
    // A finished request has no blocks, and no tokens to compute.
    if (request != nullptr && !request->finished) arrivals.failed.push_back(job.request);
  }
}

void OffloadScheduler::Impl::BecomeLate(Job& job) {
  job.late = true;
  loading.BecomeLate(job.keys);
}

void OffloadScheduler::TakeLateLoads(int64_t now_ms, std::vector<LateLoad>& late) {
  for (auto* loads : {&impl_->jobs, &impl_->dropped_loads}) {
    for (auto& [id, job] : *loads) {
      if (job.store || job.late || job.within_step || now_ms < job.deadline_ms) continue;
      ++impl_->stats.late_loads;
      if (loads == &impl_->jobs) impl_->BecomeLate(job);
      job.late = true;
      Impl::Request* request = impl_->Find(job.request);
      if (request == nullptr || request->finished) continue;
      job.given_up = true;
      request->load_failed = true;
      std::erase(request->jobs, id);
      late.push_back({job.request, id});
    }
  }
}

void OffloadScheduler::Impl::Complete(OffloadJobId id, Job job, OffloadArrivals& arrivals) {
  Request* request = Find(job.request);
  if (job.store) {
    stats.failed_stores += job.failed;
    fences.Remove(job.blocks, id);
    calls.CompleteStore(job.request, job.keys, !job.failed);
    if (job.failed) {
      for (const OffloadKey& key : job.keys) writer.Forget(key);
    }
    TranslateEventsNow();
  } else {
    stats.failed_loads += job.failed;
    KV_CHECK(calls.CompleteLoad(job.request, job.keys).ok());
    loading.Remove(job.keys, job.late);
    EndLoad(id, job, arrivals);
  }
  if (request == nullptr) return;
  // Another load of this request could fail in the same way.
  request->load_failed |= job.failed && !job.store;
  std::erase(request->jobs, id);
  ForgetIfDone(job.request);
}

void OffloadScheduler::OnCompletions(std::span<const OffloadCompletion> completions,
                                     OffloadArrivals& arrivals) {
  arrivals.loaded.clear();
  arrivals.failed.clear();
  arrivals.released.clear();
  // `completions` may name the stores of a request before the failed load of the request. These
  // stores must fail, too.
  for (const OffloadCompletion& completion : completions) {
    if (completion.success) continue;
    for (const auto* loads : {&impl_->jobs, &impl_->dropped_loads}) {
      const auto load = loads->find(completion.job);
      if (load != loads->end() && load->second.within_step) impl_->FailStoresBasedOn(load->second);
    }
  }
  for (const OffloadCompletion& completion : completions) {
    const auto found = impl_->jobs.find(completion.job);
    const auto dropped = impl_->dropped_loads.find(completion.job);
    const bool is_dropped = dropped != impl_->dropped_loads.end();
    if (found == impl_->jobs.end() && !is_dropped) {
      ++impl_->stats.unknown_completions;
      continue;
    }
    Impl::Job& job = is_dropped ? dropped->second : found->second;
    job.failed |= !completion.success;
    job.pending_workers -= completion.workers;
    if (job.pending_workers > 0) continue;
    if (is_dropped) {
      if (job.failed && !impl_->config.compatible) {
        ++impl_->stats.failed_loads;
        if (Impl::Request* request = impl_->Find(job.request)) request->load_failed = true;
      }
      impl_->EndLoad(completion.job, job, arrivals);
      impl_->dropped_loads.erase(dropped);
      continue;
    }
    Impl::Job ended = std::move(job);
    impl_->jobs.erase(found);
    impl_->Complete(completion.job, std::move(ended), arrivals);
  }
}

bool OffloadScheduler::RequestFinished(OffloadRequestId id, int64_t computed_tokens, bool aborted) {
  Impl::Request* request = impl_->Find(id);
  if (request == nullptr || request->finished) return false;
  request->finished = true;
  const bool all = impl_->config.compatible && !aborted;
  const int64_t tokens = request->num_tokens();
  const int64_t known =
      impl_->is_v032() ? std::max(request->request->prompt_tokens, tokens - 1) : tokens;
  request->final_tokens = all ? known : computed_tokens;
  impl_->finished.push_back(id);
  impl_->FenceFinished(*request);
  const auto runs = [](const Impl::Job& job) { return !job.store && !job.within_step; };
  // vLLM's connector forgets the loads that run during a reset.
  const bool dropped =
      !impl_->config.compatible &&
      std::ranges::any_of(impl_->dropped_loads, [&](const auto& entry) {
        return entry.second.request == id && !entry.second.given_up && runs(entry.second);
      });
  return dropped || std::ranges::any_of(
                        request->jobs, [&](OffloadJobId job) { return runs(impl_->jobs.at(job)); });
}

Status OffloadScheduler::Reset() {
  Impl& impl = *impl_;
  if (!impl.loads.empty()) {
    return {StatusCode::kFailedPrecondition, "BuildStep has not returned all loads"};
  }
  for (auto& [id, job] : impl.jobs) {
    impl.flush.insert(id);
    if (!job.store) impl.dropped_loads.emplace(id, std::move(job));
  }
  impl.jobs.clear();
  for (const OffloadRequestId id : std::exchange(impl.finished, {})) {
    if (Impl::Request* request = impl.Find(id)) impl.Close(*request);
  }
  absl::erase_if(impl.requests, [](const auto& entry) { return entry.second->finished; });
  for (auto& [id, request] : impl.requests) {
    request->jobs.clear();
    for (offload::GroupState& group : request->groups) group.next_stored_chunk = 0;
  }
  impl.TranslateEventsNow();
  impl.calls.Reset();
  impl.TranslateEventsNow();
  impl.writer.Clear();
  impl.fences.Clear();
  impl.loading.Clear();
  return Status();
}

}  // namespace kvcast
