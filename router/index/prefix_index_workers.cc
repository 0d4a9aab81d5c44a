// The part of PrefixIndex::Impl that keeps the workers: registration, hidden generations, and the
// views and rosters that readers load.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "router/index/prefix_index_impl.h"

namespace kvcast {

using router::AmbiguousNames;
using router::GroupRegistry;
using router::HolderId;
using router::Roster;
using router::WorkerRules;
using router::WorkerSlot;
using router::WorkerState;
using router::WorkerView;

namespace {

template <typename T>
void DeleteObject(void* /*context*/, uintptr_t object) {
  delete reinterpret_cast<T*>(object);
}

}  // namespace

PrefixIndex::Impl::~Impl() {
  // No reader is left, so relaxed loads suffice here.
  delete roster_.load(std::memory_order_relaxed);
  for (const std::unique_ptr<WorkerState>& worker : slots_) {
    if (!worker) continue;
    delete worker->view->ambiguous.load(std::memory_order_relaxed);
  }
}

void PrefixIndex::Impl::Commit(WorkerState& worker) {
  WorkerView& view = *worker.view;
  const WorkerRules* const known = view.rules.load(std::memory_order_relaxed);
  const WorkerRules* rules = known;
  const bool learned = worker.registry_changes != worker.registry.changes() || known == nullptr;
  if (learned) {
    worker.registry_changes = worker.registry.changes();
    rules = rule_sets_.Use(WorkerRules(worker.config, worker.registry, worker.shown));
  }
  const AmbiguousNames* const ambiguous_before = view.ambiguous.load(std::memory_order_relaxed);
  const AmbiguousNames* ambiguous = ambiguous_before;
  if (std::exchange(worker.ambiguous_changed, false)) {
    ambiguous = worker.ambiguous.empty() ? nullptr : new AmbiguousNames(worker.ambiguous);
  }
  // Queries wait only from here until the second store of the version. I1: the first store needs no
  // order of its own, because the stores of data are release stores (I2).
  holder_table_.changes().Begin(view.slot);
  const uint64_t version = view.version.load(std::memory_order_relaxed);        // I0
  view.version.store(version + 1, std::memory_order_release);                   // I1
  for (const HolderId holder : closing_) holder_table_.Close(holder);           // I8
  map_.Publish();                                                               // I2
  view.rules.store(rules, std::memory_order_release);                           // I2, I10
  view.certain.store(worker.hit_reports.certain(), std::memory_order_release);  // I2
  view.ambiguous.store(ambiguous, std::memory_order_release);                   // I2, I10
  view.has_named.store(worker.has_names, std::memory_order_release);            // I2
  // I2
  view.unnamed.store(
      2 * worker.unnamed[static_cast<size_t>(Tier::kGpu)] + uint64_t{worker.total_unnamed() > 0},
      std::memory_order_release);
  view.version.store(version + 2, std::memory_order_release);  // I1
  holder_table_.changes().End();
  closing_.clear();
  // The changes of a paused batch are not published. A later Commit tidies.
  if (!mutex_.any_paused()) map_.Tidy();
  if (learned) rule_sets_.Leave(known);
  if (ambiguous_before != nullptr && ambiguous_before != ambiguous) {
    reclaim_.Retire(DeleteObject<const AmbiguousNames>, nullptr,
                    reinterpret_cast<uintptr_t>(ambiguous_before));
  }
}

void PrefixIndex::Impl::Show(WorkerId id, const WorkerView* view) {
  const Roster* const old = roster_.load(std::memory_order_relaxed);        // I0
  roster_.store(old->With(id, view).release(), std::memory_order_release);  // I10
  reclaim_.Retire(DeleteObject<const Roster>, nullptr, reinterpret_cast<uintptr_t>(old));
}

Status PrefixIndex::Impl::AddWorker(WorkerId id, const WorkerConfig& config) {
  Result<GroupRegistry> registry = GroupRegistry::FromConfig(config);
  if (!registry.ok()) return registry.status();
  router::BetweenBatchesLock lock(mutex_);
  if (slot_of_.contains(id)) {
    return Status(StatusCode::kFailedPrecondition, "worker is registered already");
  }
  if (slot_of_.size() >= kMaxIndexWorkers) return Status(StatusCode::kLimit, "too many workers");
  WorkerState& worker = Enter(id, config, std::move(registry).value());
  slot_of_.emplace(id, worker.view->slot);
  Show(id, worker.view.get());
  return Status();
}

WorkerSlot PrefixIndex::Impl::TakeSlot() {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<WorkerSlot>(slots_.size()));
    slots_.emplace_back();
  }
  const WorkerSlot slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

WorkerState& PrefixIndex::Impl::Enter(WorkerId id, const WorkerConfig& config,
                                      GroupRegistry registry) {
  const WorkerSlot slot = TakeSlot();
  slots_[slot] = std::make_unique<WorkerState>(id, slot, config);
  WorkerState& worker = *slots_[slot];
  worker.registry = std::move(registry);
  worker.number = ++states_;
  holder_table_.SetVersion(slot, &worker.view->version);
  Commit(worker);
  return worker;
}

// Removes the worker of this slot. REQUIRES: the roster does not have its view.
void PrefixIndex::Impl::Leave(WorkerSlot slot) {
  WorkerState& worker = *slots_[slot];
  for (int tier = 0; tier < kTiers; ++tier) ClearTier(worker, static_cast<Tier>(tier));
  holder_table_.changes().Begin(slot);
  // I1: the version stays odd. A reader that still has this view retries with a new roster.
  worker.view->version.fetch_add(1, std::memory_order_release);
  for (const HolderId holder : closing_) holder_table_.Close(holder);
  closing_.clear();
  holder_table_.changes().End();
  // The worker has no open holder, so no move makes the version even.
  holder_table_.SetVersion(slot, nullptr);
  rule_sets_.Leave(worker.view->rules.load(std::memory_order_relaxed));
  if (const auto* ambiguous = worker.view->ambiguous.load(std::memory_order_relaxed)) {
    reclaim_.Retire(DeleteObject<const AmbiguousNames>, nullptr,
                    reinterpret_cast<uintptr_t>(ambiguous));
  }
  reclaim_.Retire(DeleteObject<WorkerView>, nullptr,
                  reinterpret_cast<uintptr_t>(worker.view.release()));
  slots_[slot].reset();
  free_slots_.push_back(slot);
}

void PrefixIndex::Impl::BeginHidden(WorkerId id) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  ForgetHidden(id);
  const WorkerState& worker = *slots_[it->second];
  // Enter may reallocate slots_. The WorkerState objects keep their addresses.
  WorkerState& hidden = Enter(id, worker.config, worker.registry);
  hidden.elder = slots_[it->second].get();
  hidden.rule_refuted = worker.rule_refuted;
  hidden_of_.emplace(id, hidden.view->slot);
}

void PrefixIndex::Impl::ForgetHidden(WorkerId id) {
  const auto it = hidden_of_.find(id);
  if (it == hidden_of_.end()) return;
  Leave(it->second);
  hidden_of_.erase(it);
}

void PrefixIndex::Impl::DropHidden(WorkerId id) {
  router::BetweenBatchesLock lock(mutex_);
  ForgetHidden(id);
}

void PrefixIndex::Impl::ApplyHidden(WorkerId id, const EventBatch& batch) {
  router::BatchLock lock(mutex_);
  const auto it = hidden_of_.find(id);
  if (it != hidden_of_.end()) ApplyTo(*slots_[it->second], batch);
}

void PrefixIndex::Impl::SwapHidden(WorkerId id) {
  router::BetweenBatchesLock lock(mutex_);
  const auto hidden = hidden_of_.find(id);
  if (hidden == hidden_of_.end()) return;
  WorkerSlot& slot = slot_of_.at(id);
  WorkerState& elder = *slots_[slot];
  WorkerState& younger = *slots_[hidden->second];
  younger.elder = nullptr;
  younger.counters = elder.counters;
  younger.rejects = std::move(elder.rejects);
  younger.idle = std::move(elder.idle);
  younger.parked.TakeAll(elder.parked);
  younger.has_names |= elder.has_names;
  younger.lower_names |= elder.lower_names;
  younger.rule_refuted |= elder.rule_refuted;
  elder.shown.refused_tiers = younger.shown.refused_tiers;  // of the new blocks
  younger.shown = elder.shown;
  younger.sample = std::move(elder.sample);
  younger.announced |= elder.announced;
  younger.evidence = std::move(elder.evidence);
  younger.evidence.ForgetBlocks();
  if (younger.residencies[static_cast<size_t>(Tier::kGpu)] > 0) {
    younger.hit_reports.NoteRecord();
    younger.evidence.Close();  // the number of stores of each block is unknown
  }
  younger.registry_changes = ~uint64_t{0};
  younger.ambiguous.AddAll(elder.ambiguous);
  younger.ambiguous_changed = true;
  Commit(younger);
  const WorkerSlot old = std::exchange(slot, hidden->second);
  hidden_of_.erase(hidden);
  Show(id, slots_[slot]->view.get());
  Leave(old);
}

void PrefixIndex::Impl::RemoveWorker(WorkerId id) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  ForgetHidden(id);
  const WorkerSlot slot = it->second;
  slot_of_.erase(it);
  Show(id, nullptr);
  Leave(slot);
}

void PrefixIndex::Impl::ClearWorker(WorkerId id, bool forget_groups) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  WorkerState& worker = *slots_[it->second];
  for (int tier = 0; tier < kTiers; ++tier) ClearTier(worker, static_cast<Tier>(tier));
  if (forget_groups) {
    Result<GroupRegistry> registry = GroupRegistry::FromConfig(worker.config);
    KV_CHECK(registry.ok());
    worker.registry = std::move(registry).value();
    worker.registry_changes = ~uint64_t{0};
    ForgetNames(worker);
  }
  worker.evidence.ForgetBlocks();
  // The engine may still hold the blocks that the index forgets here.
  if (!forget_groups) worker.evidence.Close();
  Commit(worker);
}

void PrefixIndex::Impl::NoteMissedBlocks(WorkerId id) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it != slot_of_.end()) slots_[it->second]->evidence.Close();
}

void PrefixIndex::Impl::NoteRecord(WorkerId id) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  WorkerState& worker = *slots_[it->second];
  worker.hit_reports.NoteRecord();
  worker.evidence.Close();  // the number of stores of a repaired block is unknown
  Commit(worker);
}

Status PrefixIndex::Impl::LearnHashBlockSize(WorkerId id, int64_t hash_block_size) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return Status(StatusCode::kNotFound, "worker is not registered");
  WorkerState& worker = *slots_[it->second];
  if (worker.registry.LearnHashBlockSize(hash_block_size)) {
    Commit(worker);
    return Status();
  }
  return Status(StatusCode::kFailedPrecondition,
                "hash_block_size: contradicts the registration or a block size");
}

void PrefixIndex::Impl::LearnRules(WorkerId id, std::optional<EngineRules> rules) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  WorkerState& worker = *slots_[it->second];
  if (worker.shown.rules == rules) return;
  worker.shown.rules = rules;
  worker.registry_changes = ~uint64_t{0};
  Commit(worker);
}

void PrefixIndex::Impl::ClearTier(WorkerState& worker, Tier tier) {
  if (tier == Tier::kGpu) {
    worker.hit_reports.Clear();
    worker.evidence.ForgetBlocks();
    worker.sample.Clear();
  }
  worker.NoteRefused(tier, false);
  if (worker.digest) worker.digest->Clear(tier);
  for (const HolderId holder : worker.holders.of(tier)) {
    if (holder == router::kNoHolderId) continue;
    closing_.push_back(holder);
    holder_table_.Condemn(holder);
  }
  worker.holders.Clear(tier);
  worker.residencies[static_cast<size_t>(tier)] = 0;
  worker.unnamed[static_cast<size_t>(tier)] = 0;
}

void PrefixIndex::Impl::ForgetNames(WorkerState& worker) {
  worker.idle.Clear();
  worker.parked.Clear();
  worker.ambiguous = {};
  worker.ambiguous_changed = true;
  worker.rule_refuted = false;
  worker.has_names = false;
  worker.lower_names = false;
  worker.shown = {};
  worker.evidence = {};
  worker.sample.Clear();
  worker.announced = 0;
  worker.registry_changes = ~uint64_t{0};
}

}  // namespace kvcast
