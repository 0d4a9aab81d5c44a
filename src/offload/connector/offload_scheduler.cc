// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/offload/connector/scheduler_impl.h"

namespace kvcast {

namespace {

Status CheckConfig(const OffloadSchedulerConfig& config) {
  if (config.num_workers < 1) {
    return {StatusCode::kInvalidArgument, "num_workers must be positive"};
  }
  if (config.max_pending_ms < 0) {
    return {StatusCode::kInvalidArgument, "max_pending_ms must not be negative"};
  }
  if (config.late_load_ms < 0) {
    return {StatusCode::kInvalidArgument, "late_load_ms must not be negative"};
  }
  if (config.load_bytes_per_ms < 1) {
    return {StatusCode::kInvalidArgument, "load_bytes_per_ms must be positive"};
  }
  if (config.sync_load_budget_bytes < 0) {
    return {StatusCode::kInvalidArgument, "sync_load_budget_bytes must not be negative"};
  }
  if (config.memory.chunk_bytes.size() != config.layout.groups.size()) {
    return {StatusCode::kInvalidArgument, "memory.chunk_bytes must have one entry per group"};
  }
  const bool checkpoints =
      std::ranges::any_of(config.layout.groups, &GroupSpec::prefill_checkpoint_blocks);
  if (checkpoints && !offload::StatesAreHandedOver(config)) {
    return {StatusCode::kInvalidArgument,
            "prefill checkpoints need states_handed_over: a block table does not show after which "
            "token a state was kept"};
  }
  return Status();
}

}  // namespace

OffloadScheduler::Impl::Impl(const OffloadSchedulerConfig& scheduler_config, OffloadLayout groups,
                             std::unique_ptr<OffloadManager> manager)
    : config(scheduler_config),
      layout(std::move(groups)),
      calls(std::move(manager), config.observer),
      writer(config.layout.groups, config.hash_form, config.memory.medium,
             offload::OffloadEventForm::kByGroup, config.rules >= EngineRules::kV032),
      describer(layout, config) {}

OffloadScheduler::Impl::Request* OffloadScheduler::Impl::Find(OffloadRequestId id) {
  const auto found = requests.find(id);
  return found == requests.end() ? nullptr : found->second.get();
}

void OffloadScheduler::Impl::TranslateEvents() {
  for (const OffloadEvent& event : calls.manager().TakeEvents()) writer.Translate(event, events);
}

OffloadScheduler::OffloadScheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OffloadScheduler::~OffloadScheduler() = default;

Result<std::unique_ptr<OffloadScheduler>> OffloadScheduler::Create(
    const OffloadSchedulerConfig& config) {
  if (Status status = CheckConfig(config); !status.ok()) return status;
  OffloadLayoutConfig groups = config.layout;
  groups.compatible |= config.compatible;
  groups.rules = config.rules;
  auto layout = OffloadLayout::Derive(groups);
  if (!layout.ok()) return layout.status();
  OffloadConfig memory = config.memory;
  memory.compatible |= config.compatible;
  memory.rules = config.rules;
  // Groups that are not in the layout must not influence the slot size, so they get the chunk size
  // of the first group of the layout.
  const size_t first = layout->groups[0].index.value;
  for (size_t g = 0, next = 0; g < memory.chunk_bytes.size(); ++g) {
    const bool stays = next < layout->groups.size() && layout->groups[next].index.value == g;
    if (stays) ++next;
    if (!stays) memory.chunk_bytes[g] = config.memory.chunk_bytes[first];
  }
  auto manager = OffloadManager::Create(memory);
  if (!manager.ok()) return manager.status();
  return std::unique_ptr<OffloadScheduler>(new OffloadScheduler(
      std::make_unique<Impl>(config, std::move(layout).value(), std::move(manager).value())));
}

Status OffloadScheduler::AddRequest(OffloadRequestId id, const CacheRequest& request,
                                    const OffloadRequestOptions& options) {
  auto state = std::make_unique<Impl::Request>();
  state->id = id;
  state->request = &request;
  state->options = options;
  state->groups.resize(impl_->layout.groups.size());
  if (!impl_->requests.try_emplace(id, std::move(state)).second) {
    return {StatusCode::kInvalidArgument, "request id " + std::to_string(id.value) + " is in use"};
  }
  return Status();
}

OffloadMatch OffloadScheduler::MatchedTokens(OffloadRequestId id, int64_t local_tokens,
                                             int64_t now_ms) {
  Impl::Request* request = impl_->Find(id);
  if (request == nullptr || request->finished) return {0, std::nullopt};
  const int64_t local = std::clamp<int64_t>(local_tokens, 0, request->num_tokens());
  return impl_->Match(*request, local, now_ms);
}

Status OffloadScheduler::UpdateAfterAlloc(OffloadRequestId id, int64_t external_tokens,
                                          std::span<const std::vector<BlockId>> tables) {
  if (external_tokens == 0) return Status();
  Impl::Request* request = impl_->Find(id);
  if (request == nullptr || request->finished) {
    return {StatusCode::kNotFound, "no running request has id " + std::to_string(id.value)};
  }
  return impl_->Load(*request, external_tokens, tables);
}

std::vector<Event> OffloadScheduler::TakeEvents() {
  impl_->TranslateEvents();
  impl_->writer.EndBatch();
  return std::exchange(impl_->events, {});
}

OffloadSchedulerStats OffloadScheduler::TakeStats() {
  OffloadSchedulerStats stats = std::exchange(impl_->stats, {});
  stats.memory = impl_->calls.manager().TakeStats();
  return stats;
}

bool OffloadScheduler::has_pending_work() const {
  return !impl_->jobs.empty() || !impl_->dropped_loads.empty() || !impl_->flush.empty();
}
const OffloadLayout& OffloadScheduler::layout() const { return impl_->layout; }
const OffloadManager& OffloadScheduler::manager() const { return impl_->calls.manager(); }
OffloadJobId OffloadScheduler::next_job() const { return impl_->next_job; }
int64_t OffloadScheduler::num_requests() const { return std::ssize(impl_->requests); }

std::optional<OffloadScheduler::RequestState> OffloadScheduler::InspectRequest(
    OffloadRequestId id) const {
  const Impl::Request* request = impl_->Find(id);
  if (request == nullptr) return std::nullopt;
  RequestState state;
  for (const offload::GroupState& group : request->groups) {
    state.hit_chunks.push_back(group.hit_chunks);
    state.next_stored_chunk.push_back(group.next_stored_chunk);
  }
  state.jobs = request->jobs;
  return state;
}

std::vector<std::pair<BlockId, std::vector<OffloadJobId>>> OffloadScheduler::FencedBlocks() const {
  return impl_->fences.List();
}

std::vector<OffloadJobId> OffloadScheduler::JobsInFlight() const {
  std::vector<OffloadJobId> ids;
  for (const auto& [id, job] : impl_->jobs) ids.push_back(id);
  return ids;
}

std::vector<OffloadJobId> OffloadScheduler::PendingFlush() const {
  return {impl_->flush.begin(), impl_->flush.end()};
}

}  // namespace kvcast
