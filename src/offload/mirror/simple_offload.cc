// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/simple_offload.h"

#include <algorithm>
#include <utility>

#include "src/offload/mirror/simple_impl.h"

namespace kvcast {

using offload::MatchPin;
using offload::Store;

SimpleOffload::SimpleOffload(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SimpleOffload::~SimpleOffload() = default;

const SimpleOffloadConfig& SimpleOffload::config() const { return impl_->config; }

int64_t SimpleOffload::Match(const CacheRequest& request, int64_t local_tokens) {
  impl_->DropPin(request.id);
  if (request.skip_prefix_lookup || local_tokens < 0) return 0;
  const auto load = impl_->loads.find(request.id);
  if (load != impl_->loads.end() && load->second.given_up) return 0;
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  PrefixHit hit = impl_->Search(request, local_tokens, tokens - 1 - local_tokens);
  if (hit.tokens == 0) return 0;
  for (const auto& blocks : hit.blocks) impl_->cpu.Touch(blocks);
  impl_->pins[request.id] = MatchPin{local_tokens, hit.tokens, std::move(hit.blocks)};
  return hit.tokens;
}

Status SimpleOffload::UpdateAfterAlloc(const CacheRequest& request, int64_t external_tokens) {
  if (impl_->config.mode == StoreMode::kEager) impl_->ProgressOf(request);
  const bool frees_pin = !impl_->config.compatible;
  if (external_tokens == 0) {
    if (frees_pin) impl_->DropPin(request.id);
    return {};
  }
  const auto pin = impl_->pins.find(request.id);
  const int64_t matched = pin == impl_->pins.end() ? 0 : pin->second.tokens;
  if (external_tokens < 0 || external_tokens > matched || impl_->loads.contains(request.id)) {
    if (frees_pin) impl_->DropPin(request.id);
    return {StatusCode::kFailedPrecondition,
            request.id + ": external_tokens is not in 0..match, or the request has a load"};
  }
  const int64_t local = pin->second.local_tokens;
  if (external_tokens == matched || impl_->config.compatible) {
    impl_->StartLoad(request, local, external_tokens, pin->second.blocks);
    impl_->DropPin(request.id);
    return {};
  }
  const PrefixHit shorter_hit = impl_->Search(request, local, external_tokens);
  const bool served = shorter_hit.tokens == external_tokens;
  if (served) impl_->StartLoad(request, local, external_tokens, shorter_hit.blocks);
  impl_->DropPin(request.id);
  if (served) return {};
  return {StatusCode::kFailedPrecondition,
          request.id + ": external_tokens is below the match and is not a possible hit"};
}

void SimpleOffload::Preempt(const CacheRequest& request, int64_t computed_tokens) {
  impl_->preempted = true;
  impl_->DescribeTables(request, computed_tokens);
  const auto found = impl_->progress.find(request.id);
  if (found == impl_->progress.end()) return;
  std::fill(found->second.cursors.begin(), found->second.cursors.end(), 0);
}

void SimpleOffload::BuildStep(std::span<const StepRequest> scheduled, TransferStep& step) {
  const bool lazy = impl_->config.mode == StoreMode::kLazy;
  for (const StepRequest& entry : scheduled) {
    impl_->DescribeTables(*entry.request, entry.confirmed_tokens);
    if (!lazy && impl_->progress.contains(entry.request->id)) {
      impl_->StoreRequest(*entry.request, entry.confirmed_tokens, false);
    }
  }
  if (lazy) impl_->StoreFreeBlocks();
  impl_->HandOutLoads(step);
  impl_->HandOutStores(step);
  step.need_flush = std::exchange(impl_->preempted, false);
}

Status SimpleOffload::CompleteStore(int64_t store_event, int64_t workers, bool success) {
  const auto found = impl_->stores.find(store_event);
  if (found == impl_->stores.end()) {
    return {StatusCode::kNotFound, "no store " + std::to_string(store_event) + " is in progress"};
  }
  Store& store = found->second;
  if (workers < 1 || workers > store.workers_left) {
    return {StatusCode::kInvalidArgument,
            "store " + std::to_string(store_event) + " waits for fewer workers than are reported"};
  }
  store.workers_left -= workers;
  store.failed = store.failed || !success;
  if (store.workers_left > 0) return {};
  impl_->EndStore(store);
  impl_->stores.erase(found);
  return {};
}

Status SimpleOffload::CompleteLoad(const std::string& request_id, bool success) {
  const auto found = impl_->loads.find(request_id);
  if (found == impl_->loads.end() || !found->second.event) {
    return {StatusCode::kNotFound, request_id + ": no load is in progress"};
  }
  impl_->EndLoad(found->second, success);
  impl_->loads.erase(found);
  return {};
}

Status SimpleOffload::GiveUpLoad(const std::string& request_id) {
  const auto found = impl_->loads.find(request_id);
  if (found == impl_->loads.end() || !found->second.event) {
    return {StatusCode::kNotFound, request_id + ": no load is in progress"};
  }
  found->second.given_up = true;
  impl_->ForgetHost(found->second);
  return {};
}

void SimpleOffload::RequestFinished(const CacheRequest& request, int64_t computed_tokens) {
  impl_->DropPin(request.id);
  if (const auto load = impl_->loads.find(request.id);
      load != impl_->loads.end() && !load->second.event) {
    impl_->Release(load->second.copies);
    std::erase(impl_->new_loads, request.id);
    impl_->loads.erase(load);
  }
  impl_->DescribeTables(request, computed_tokens);
  const auto found = impl_->progress.find(request.id);
  if (found == impl_->progress.end()) return;
  if (impl_->config.mode == StoreMode::kEager && !impl_->config.compatible) {
    impl_->StoreRequest(request, computed_tokens, true);
  }
  found->second.finished = true;
  if (found->second.stores == 0) impl_->progress.erase(found);
}

bool SimpleOffload::Reset() {
  Impl& impl = *impl_;
  impl.DropNotHandedOut();
  if (!impl.config.compatible) {
    impl.cpu.ForgetAll();
    for (auto& [id, pin] : std::exchange(impl.pins, {})) impl.FreeMatched(pin);
  }
  for (auto& [id, load] : impl.loads) load.abandoned = true;
  for (auto& [event, store] : impl.stores) {
    store.abandoned = true;
    store.requests.clear();
  }
  impl.storing_keys.clear();
  impl.storing_gpu_blocks.clear();
  impl.lazy_cursor.reset();
  impl.failed_stores.clear();
  absl::erase_if(impl.progress, [&impl](auto& entry) {
    entry.second.stores = 0;
    std::fill(entry.second.cursors.begin(), entry.second.cursors.end(), 0);
    return impl.config.compatible || entry.second.finished;
  });
  const bool drained = impl.loads.empty() && impl.stores.empty();
  return impl.config.compatible ? drained && impl.cpu.Reset() : drained;
}

bool SimpleOffload::has_pending_work() const {
  return !impl_->loads.empty() || !impl_->stores.empty() || !impl_->next_store.copies.empty();
}

std::vector<Event> SimpleOffload::TakeEvents() {
  std::vector<Event> events;
  events.reserve(impl_->cpu.events().size());
  impl_->cpu.events().Drain([&events](const auto& event) { engine::AppendEvents(event, events); });
  return events;
}

CacheUsage SimpleOffload::usage() const {
  return {impl_->cpu.num_blocks() - 1, impl_->cpu.num_free()};
}

}  // namespace kvcast
