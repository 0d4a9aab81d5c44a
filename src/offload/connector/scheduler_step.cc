// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/offload/connector/scheduler_impl.h"

namespace kvcast {

using offload::GroupState;
using offload::TableEntry;

// In window groups, clears the table entries whose blocks this step allocated again. Another
// request may own these blocks.
void OffloadScheduler::Impl::ForgetStaleBlocks(Request& request) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (!layout.groups[g].window_chunks) continue;
    GroupState& group = request.groups[g];
    const int64_t first = group.next_stored_chunk * layout.blocks_per_chunk;
    for (int64_t i = first; i < std::ssize(group.table); ++i) {
      TableEntry& entry = group.table[static_cast<size_t>(i)];
      if (entry.step != allocated.step() && allocated.IsInStep(entry.block)) {
        entry.block = BlockId(0);
      }
    }
  }
}

void OffloadScheduler::Impl::UpdateTables(const OffloadStep& step) {
  for (const OffloadStep::Scheduled& scheduled : step.scheduled) {
    for (const std::vector<BlockId>& blocks : scheduled.new_blocks) {
      for (const BlockId block : blocks) allocated.Note(block);
    }
  }
  for (const OffloadStep::Scheduled& scheduled : step.scheduled) {
    Request* request = Find(scheduled.request);
    if (request == nullptr) continue;
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      std::vector<TableEntry>& table = request->groups[g].table;
      if (scheduled.starts) table.clear();
      const size_t index = layout.groups[g].index.value;
      if (index >= scheduled.new_blocks.size()) continue;
      for (const BlockId block : scheduled.new_blocks[index]) {
        table.push_back({block, allocated.step()});
      }
    }
    if (config.compatible) ForgetStaleBlocks(*request);
  }
  if (!config.compatible) return;
  for (const OffloadRequestId id : finished) {
    if (Request* request = Find(id)) ForgetStaleBlocks(*request);
  }
}

void OffloadScheduler::Impl::FlushPreempted(const OffloadStep& step) {
  for (const OffloadRequestId id : step.preempted) {
    const Request* request = Find(id);
    if (request == nullptr) continue;
    // If the request was admitted again in this step, it has a load that is not submitted yet. This
    // load is not flushed.
    for (const OffloadJobId job : request->jobs) {
      if (jobs.at(job).store) flush.insert(job);
    }
  }
}

void OffloadScheduler::Impl::FlushFenced() {
  for (const BlockId block : allocated.in_step()) fences.AddReaders(block, flush);
}

void OffloadScheduler::Impl::Close(Request& request) {
  request.closed = true;
  calls.FinishRequest(request.id);
}

void OffloadScheduler::Impl::CloseFinished() {
  for (const OffloadRequestId id : std::exchange(finished, {})) {
    Request* request = Find(id);
    if (request == nullptr || !request->finished) continue;
    Close(*request);
    ForgetIfDone(id);
  }
}

const OffloadPlan& OffloadScheduler::BuildStep(const OffloadStep& step) {
  Impl& impl = *impl_;
  impl.plan.stores.clear();
  // At this point, `flush` has only jobs that a Reset dropped. These jobs still use slots that the
  // manager counts as free. The last store of a finished request could get one of these slots, and
  // could run at the same time as the dropped job. So finished requests are closed here, without
  // that store. All other stores begin after the flush.
  if (!impl.config.compatible && !impl.flush.empty()) impl.CloseFinished();
  impl.UpdateTables(step);
  impl.FlushPreempted(step);
  impl.FlushFenced();
  if (impl.states_handed_over()) impl.StoreStates(step);
  impl.StoreTails(step);
  for (const OffloadStep::Scheduled& scheduled : step.scheduled) {
    if (Impl::Request* request = impl.Find(scheduled.request)) {
      impl.Store(*request, scheduled.computed_tokens + scheduled.scheduled_tokens);
    }
  }
  for (const OffloadRequestId id : impl.finished) {
    Impl::Request* request = impl.Find(id);
    if (request != nullptr && request->finished) impl.Store(*request, request->final_tokens);
  }
  impl.CloseFinished();
  impl.plan.loads = std::exchange(impl.loads, {});
  impl.plan.before_step = std::exchange(impl.before_step, {});
  impl.sync_bytes = 0;
  impl.plan.flush.assign(impl.flush.begin(), impl.flush.end());
  impl.flush.clear();
  impl.allocated.NextStep();
  return impl.plan;
}

}  // namespace kvcast
