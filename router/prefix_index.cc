// SPDX-License-Identifier: Apache-2.0
#include "kvcast/prefix_index.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "router/group_catalogue.h"
#include "router/hit_report.h"
#include "router/match_plan.h"
#include "router/residency_map.h"
#include "router/seeded_hash.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace kvcast {

using router::GroupCatalogue;
using router::Holder;
using router::MatchPlan;
using router::QueryShape;
using router::ResidencyMap;
using router::WorkerSlot;
using Verdict = GroupCatalogue::Verdict;

namespace {

// Hashes ahead of the one in work whose table lines are being loaded.
constexpr size_t kPrefetchDistance = 8;

struct WorkerState {
  WorkerId id;
  WorkerConfig config;
  GroupCatalogue catalogue;
  IndexCounters counters;
  std::array<uint64_t, kTiers> residencies{};
  uint64_t order = 0;  // of registration
  router::HitReportState hit_reports{HitReports::kUnknown};
  std::optional<ResidencyDigest> digest;

  uint64_t total() const {
    return std::accumulate(residencies.begin(), residencies.end(), uint64_t{0});
  }
  // Counts what became of an event; whether it changes residency.
  bool Accept(Verdict verdict) {
    if (verdict == Verdict::kBad) ++counters.bad_events;
    if (verdict == Verdict::kUnknownKind) ++counters.unknown_kinds;
    if (verdict == Verdict::kIndexAssumed) ++counters.assumed_kinds;
    return verdict == Verdict::kIndex || verdict == Verdict::kIndexAssumed;
  }
};

// Calls `visit(hash)` for each, with the table line of a later one on its way.
template <typename Visit>
void ForEachPrefetched(const ResidencyMap& map, std::span<const BlockHash> hashes, Visit visit) {
  const size_t ahead = std::min(kPrefetchDistance, hashes.size());
  for (size_t i = 0; i < ahead; ++i) map.Prefetch(hashes[i]);
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (i + ahead < hashes.size()) map.Prefetch(hashes[i + ahead]);
    visit(hashes[i], static_cast<int64_t>(i));
  }
}

void AddCopies(ResidencyMap& map, std::span<const BlockHash> hashes, const Holder& place,
               WorkerState& worker) {
  uint64_t& held = worker.residencies[static_cast<size_t>(place.tier)];
  ForEachPrefetched(map, hashes, [&](const BlockHash& hash, int64_t) {
    if (map.Add(hash, place)) ++held;
    if (worker.digest) worker.digest->Add(place.tier, place.group, hash);
  });
  worker.counters.stored_blocks += hashes.size();
}

void RemoveCopies(ResidencyMap& map, std::span<const BlockHash> hashes, const Holder& place,
                  WorkerState& worker) {
  uint64_t& held = worker.residencies[static_cast<size_t>(place.tier)];
  ForEachPrefetched(map, hashes, [&](const BlockHash& hash, int64_t) {
    const ResidencyMap::Removal removal = map.Remove(hash, place);
    if (removal == ResidencyMap::Removal::kNotHeld) {
      ++worker.counters.unknown_removes;
      worker.hit_reports.NoteUnknownRemove();
      return;
    }
    ++worker.counters.removed_blocks;
    if (worker.digest) worker.digest->Remove(place.tier, place.group, hash);
    if (removal == ResidencyMap::Removal::kLastCopy) --held;
  });
}

// The plans of a query, found by the slot of their worker.
class PlanTable {
 public:
  explicit PlanTable(size_t slots) : plan_of_slot_(slots, kNone) {}

  void Add(WorkerSlot slot, const WorkerState& worker, const QueryShape& shape) {
    if (plan_of_slot_[slot] != kNone) return;  // asked for twice
    plan_of_slot_[slot] = static_cast<uint32_t>(plans_.size());
    const router::WorkerTraits traits{worker.id, worker.config.offload_rule,
                                      worker.config.blocks_per_chunk, worker.hit_reports.none()};
    plans_.emplace_back(traits, worker.catalogue, shape);
  }
  void MarkHolders(const ResidencyMap& map, std::span<const BlockHash> chain) {
    ForEachPrefetched(map, chain, [&](const BlockHash& hash, int64_t position) {
      for (const Holder& holder : map.Find(hash)) {
        const uint32_t plan = plan_of_slot_[holder.slot];
        if (plan != kNone) plans_[plan].Mark(holder.group, holder.tier, position);
      }
    });
  }
  const std::vector<MatchPlan>& plans() const { return plans_; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  std::vector<uint32_t> plan_of_slot_;
  std::vector<MatchPlan> plans_;
};

}  // namespace

class PrefixIndex::Impl {
 public:
  Status AddWorker(WorkerId id, const WorkerConfig& config);
  void RemoveWorker(WorkerId id);
  void ClearWorker(WorkerId id, bool forget_groups);
  Status LearnUnit(WorkerId id, int64_t unit);
  std::vector<size_t> Apply(WorkerId id, const EventBatch& batch);
  void BeginHidden(WorkerId id);
  void ApplyHidden(WorkerId id, const EventBatch& batch);
  void SwapHidden(WorkerId id);
  void DropHidden(WorkerId id);
  bool Reclaim();
  ResidencyTotals HiddenDigests(WorkerId id) const;
  void ForEachResidency(WorkerId id, const ResidencyMap::Visit& visit) const;
  std::vector<WorkerMatch> Match(std::span<const BlockHash> chain, const QueryShape& shape,
                                 std::span<const WorkerId> ids) const;
  // What `read` says of the worker; `absent` if there is none.
  template <typename T, typename Read>
  T ReadWorker(WorkerId id, T absent, Read read) const {
    ReaderLock lock(mutex_);
    const auto it = slot_of_.find(id);
    return it == slot_of_.end() ? absent : read(*slots_[it->second]);
  }

 private:
  WorkerSlot TakeSlot() KV_REQUIRES(mutex_);
  void RetireHidden(WorkerId id) KV_REQUIRES(mutex_);
  std::vector<size_t> ApplyTo(WorkerSlot slot, const EventBatch& batch) KV_REQUIRES(mutex_);
  void EraseTiers(WorkerSlot slot, std::optional<Tier> tier) KV_REQUIRES(mutex_);
  // Number of leading events that repeat what the index has, and are to be left out.
  size_t SkipHitReport(WorkerSlot slot, std::span<const Event> events) KV_REQUIRES(mutex_);
  void ApplyEvent(WorkerSlot slot, const BlockStored& event) KV_REQUIRES(mutex_);
  void ApplyEvent(WorkerSlot slot, const BlockRemoved& event) KV_REQUIRES(mutex_);
  void ApplyEvent(WorkerSlot slot, const AllBlocksCleared& event) KV_REQUIRES(mutex_);
  std::vector<WorkerSlot> Participants(std::span<const WorkerId> ids, int64_t unit) const
      KV_REQUIRES_SHARED(mutex_);
  PlanTable Probe(std::span<const BlockHash> chain, const QueryShape& shape,
                  std::span<const WorkerId> ids) const;

  mutable SharedMutex mutex_;
  ResidencyMap map_ KV_GUARDED_BY(mutex_){router::ProcessSeed()};
  std::unordered_map<WorkerId, WorkerSlot> slot_of_ KV_GUARDED_BY(mutex_);
  std::vector<std::optional<WorkerState>> slots_ KV_GUARDED_BY(mutex_);
  std::vector<WorkerSlot> free_slots_ KV_GUARDED_BY(mutex_);
  std::unordered_map<WorkerId, WorkerSlot> hidden_of_ KV_GUARDED_BY(mutex_);
  std::vector<WorkerSlot> retired_ KV_GUARDED_BY(mutex_);  // in use by nobody, not erased yet
  uint64_t registrations_ KV_GUARDED_BY(mutex_) = 0;
};

Status PrefixIndex::Impl::AddWorker(WorkerId id, const WorkerConfig& config) {
  Result<GroupCatalogue> catalogue = GroupCatalogue::FromConfig(config);
  if (!catalogue.ok()) return catalogue.status();
  WriterLock lock(mutex_);
  if (slot_of_.contains(id)) {
    return Status(StatusCode::kFailedPrecondition, "worker is registered already");
  }
  if (slot_of_.size() >= kMaxIndexWorkers) return Status(StatusCode::kLimit, "too many workers");
  const WorkerSlot slot = TakeSlot();
  slot_of_.emplace(id, slot);
  WorkerState& worker = slots_[slot].emplace();
  worker.id = id;
  worker.config = config;
  worker.hit_reports = router::HitReportState(config.hit_reports);
  worker.catalogue = std::move(catalogue).value();
  worker.order = registrations_++;
  if (config.digests) worker.digest.emplace();
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

void PrefixIndex::Impl::BeginHidden(WorkerId id) {
  WriterLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  RetireHidden(id);
  const WorkerSlot slot = TakeSlot();
  hidden_of_.emplace(id, slot);
  const WorkerState& worker = *slots_[it->second];
  WorkerState& hidden = slots_[slot].emplace();
  hidden.id = id;
  hidden.config = worker.config;
  hidden.catalogue = worker.catalogue;
  hidden.hit_reports = router::HitReportState(worker.config.hit_reports);
  hidden.order = worker.order;
  if (worker.config.digests) hidden.digest.emplace();
}

void PrefixIndex::Impl::RetireHidden(WorkerId id) {
  const auto it = hidden_of_.find(id);
  if (it == hidden_of_.end()) return;
  retired_.push_back(it->second);
  hidden_of_.erase(it);
}

void PrefixIndex::Impl::DropHidden(WorkerId id) {
  WriterLock lock(mutex_);
  RetireHidden(id);
}

void PrefixIndex::Impl::ApplyHidden(WorkerId id, const EventBatch& batch) {
  WriterLock lock(mutex_);
  const auto it = hidden_of_.find(id);
  if (it != hidden_of_.end()) ApplyTo(it->second, batch);
}

void PrefixIndex::Impl::SwapHidden(WorkerId id) {
  WriterLock lock(mutex_);
  const auto hidden = hidden_of_.find(id);
  if (hidden == hidden_of_.end()) return;
  WorkerSlot& slot = slot_of_.at(id);
  slots_[hidden->second]->counters = slots_[slot]->counters;
  retired_.push_back(std::exchange(slot, hidden->second));
  hidden_of_.erase(hidden);
}

bool PrefixIndex::Impl::Reclaim() {
  WriterLock lock(mutex_);
  if (retired_.empty()) return false;
  for (const WorkerSlot slot : retired_) {
    EraseTiers(slot, std::nullopt);
    slots_[slot].reset();
    free_slots_.push_back(slot);
  }
  retired_.clear();
  return true;
}

ResidencyTotals PrefixIndex::Impl::HiddenDigests(WorkerId id) const {
  ReaderLock lock(mutex_);
  const auto it = hidden_of_.find(id);
  if (it == hidden_of_.end() || !slots_[it->second]->digest) return {};
  return slots_[it->second]->digest->Totals();
}

void PrefixIndex::Impl::ForEachResidency(WorkerId id, const ResidencyMap::Visit& visit) const {
  ReaderLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it != slot_of_.end()) map_.ForEach(it->second, visit);
}

void PrefixIndex::Impl::RemoveWorker(WorkerId id) {
  WriterLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  RetireHidden(id);
  EraseTiers(it->second, std::nullopt);
  slots_[it->second].reset();
  free_slots_.push_back(it->second);
  slot_of_.erase(it);
}

void PrefixIndex::Impl::ClearWorker(WorkerId id, bool forget_groups) {
  WriterLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  EraseTiers(it->second, std::nullopt);
  if (!forget_groups) return;
  WorkerState& worker = *slots_[it->second];
  Result<GroupCatalogue> catalogue = GroupCatalogue::FromConfig(worker.config);
  KV_CHECK(catalogue.ok());
  worker.catalogue = std::move(catalogue).value();
}

Status PrefixIndex::Impl::LearnUnit(WorkerId id, int64_t unit) {
  WriterLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return Status(StatusCode::kNotFound, "worker is not registered");
  if (slots_[it->second]->catalogue.LearnUnit(unit)) return Status();
  return Status(StatusCode::kFailedPrecondition, "hash_block_size: against what is known");
}

void PrefixIndex::Impl::EraseTiers(WorkerSlot slot, std::optional<Tier> tier) {
  WorkerState& worker = *slots_[slot];
  if (tier.value_or(Tier::kGpu) == Tier::kGpu) worker.hit_reports.Clear();
  const uint64_t held = tier ? worker.residencies[static_cast<size_t>(*tier)] : worker.total();
  if (worker.digest) {
    for (int i = 0; i < kTiers; ++i) {
      if (!tier || static_cast<Tier>(i) == *tier) worker.digest->Clear(static_cast<Tier>(i));
    }
  }
  if (held == 0) return;
  const std::array<uint64_t, kTiers> dropped = map_.EraseSlot(slot, tier);
  for (size_t i = 0; i < dropped.size(); ++i) worker.residencies[i] -= dropped[i];
  KV_CHECK((tier ? worker.residencies[static_cast<size_t>(*tier)] : worker.total()) == 0);
}

std::vector<size_t> PrefixIndex::Impl::Apply(WorkerId id, const EventBatch& batch) {
  WriterLock lock(mutex_);
  const auto it = slot_of_.find(id);
  return it == slot_of_.end() ? std::vector<size_t>() : ApplyTo(it->second, batch);
}

std::vector<size_t> PrefixIndex::Impl::ApplyTo(WorkerSlot slot, const EventBatch& batch) {
  std::vector<size_t> left_out;
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const Event& event = batch.events[i];
    if (const size_t skipped = SkipHitReport(slot, std::span(batch.events).subspan(i))) {
      for (size_t next = 0; next < skipped; ++next) left_out.push_back(i + next);
      i += skipped - 1;
      continue;
    }
    // No std::visit: the thread-safety analysis does not see a held lock inside a lambda.
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      ApplyEvent(slot, *stored);
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      ApplyEvent(slot, *removed);
    } else {
      ApplyEvent(slot, std::get<AllBlocksCleared>(event));
    }
  }
  return left_out;
}

size_t PrefixIndex::Impl::SkipHitReport(WorkerSlot slot, std::span<const Event> events) {
  WorkerState& worker = *slots_[slot];
  const router::HitReport report = router::ReadHitReport(events, slot, worker.catalogue, map_);
  if (!worker.hit_reports.Skips(report)) return 0;
  worker.counters.reannounced_blocks += report.blocks;
  return report.events;
}

void PrefixIndex::Impl::ApplyEvent(WorkerSlot slot, const BlockStored& event) {
  WorkerState& worker = *slots_[slot];
  const Tier tier = router::TierOf(event.medium);
  if (!worker.Accept(worker.catalogue.Store(event, tier))) return;
  const Holder place{.slot = slot, .group = GroupCatalogue::GroupOf(event.group_idx), .tier = tier};
  AddCopies(map_, event.block_hashes, place, worker);
}

void PrefixIndex::Impl::ApplyEvent(WorkerSlot slot, const BlockRemoved& event) {
  WorkerState& worker = *slots_[slot];
  const Tier tier = router::TierOf(event.medium);
  if (!worker.Accept(worker.catalogue.Remove(event))) return;
  const Holder place{.slot = slot, .group = GroupCatalogue::GroupOf(event.group_idx), .tier = tier};
  RemoveCopies(map_, event.block_hashes, place, worker);
}

void PrefixIndex::Impl::ApplyEvent(WorkerSlot slot, const AllBlocksCleared& event) {
  ++slots_[slot]->counters.clears;
  EraseTiers(slot, router::TierOf(event.medium));
}

std::vector<WorkerSlot> PrefixIndex::Impl::Participants(std::span<const WorkerId> ids,
                                                        int64_t unit) const {
  std::vector<WorkerSlot> slots;
  const auto add = [&](WorkerSlot slot, int64_t worker_unit) {
    if (worker_unit == unit || worker_unit == 0) slots.push_back(slot);
  };
  for (const WorkerId id : ids) {
    const auto it = slot_of_.find(id);
    if (it != slot_of_.end()) add(it->second, slots_[it->second]->catalogue.unit());
  }
  if (!ids.empty()) return slots;
  for (const auto& [id, slot] : slot_of_) add(slot, slots_[slot]->catalogue.unit());
  std::vector<uint64_t> order(slots_.size());
  for (const WorkerSlot slot : slots) order[slot] = slots_[slot]->order;
  std::sort(slots.begin(), slots.end(),
            [&order](WorkerSlot a, WorkerSlot b) { return order[a] < order[b]; });
  return slots;
}

PlanTable PrefixIndex::Impl::Probe(std::span<const BlockHash> chain, const QueryShape& shape,
                                   std::span<const WorkerId> ids) const {
  ReaderLock lock(mutex_);
  PlanTable table(slots_.size());
  for (const WorkerSlot slot : Participants(ids, shape.unit)) {
    table.Add(slot, *slots_[slot], shape);
  }
  table.MarkHolders(map_, chain.first(static_cast<size_t>(shape.prompt_units)));
  return table;
}

std::vector<WorkerMatch> PrefixIndex::Impl::Match(std::span<const BlockHash> chain,
                                                  const QueryShape& shape,
                                                  std::span<const WorkerId> ids) const {
  const PlanTable table = Probe(chain, shape, ids);
  // The rules run on private bitmaps, outside the lock.
  std::vector<WorkerMatch> matches;
  for (const MatchPlan& plan : table.plans()) matches.push_back(plan.Evaluate());
  return matches;
}

PrefixIndex::PrefixIndex() : impl_(std::make_unique<Impl>()) {}
PrefixIndex::~PrefixIndex() = default;

Status PrefixIndex::AddWorker(WorkerId worker, const WorkerConfig& config) {
  return impl_->AddWorker(worker, config);
}
void PrefixIndex::RemoveWorker(WorkerId worker) { impl_->RemoveWorker(worker); }
void PrefixIndex::ClearWorker(WorkerId worker) { impl_->ClearWorker(worker, false); }
void PrefixIndex::RestartWorker(WorkerId worker) { impl_->ClearWorker(worker, true); }
Status PrefixIndex::LearnHashBlockSize(WorkerId worker, int64_t unit) {
  return impl_->LearnUnit(worker, unit);
}
std::vector<size_t> PrefixIndex::Apply(WorkerId worker, const EventBatch& batch) {
  return impl_->Apply(worker, batch);
}
void PrefixIndex::BeginHidden(WorkerId worker) { impl_->BeginHidden(worker); }
void PrefixIndex::ApplyHidden(WorkerId worker, const EventBatch& batch) {
  impl_->ApplyHidden(worker, batch);
}
void PrefixIndex::SwapHidden(WorkerId worker) { impl_->SwapHidden(worker); }
void PrefixIndex::DropHidden(WorkerId worker) { impl_->DropHidden(worker); }
bool PrefixIndex::Reclaim() { return impl_->Reclaim(); }
ResidencyTotals PrefixIndex::Digests(WorkerId worker) const {
  return impl_->ReadWorker(worker, ResidencyTotals(), [](const WorkerState& state) {
    return state.digest ? state.digest->Totals() : ResidencyTotals();
  });
}
ResidencyTotals PrefixIndex::HiddenDigests(WorkerId worker) const {
  return impl_->HiddenDigests(worker);
}
void PrefixIndex::ForEachResidency(WorkerId worker, const ResidencyMap::Visit& visit) const {
  impl_->ForEachResidency(worker, visit);
}

std::vector<WorkerMatch> PrefixIndex::Match(std::span<const BlockHash> chain, int64_t unit,
                                            int64_t prompt_tokens,
                                            std::span<const WorkerId> workers,
                                            MatchPolicy policy) const {
  if (unit <= 0 || unit > kMaxBlockSize) return {};
  prompt_tokens = std::max<int64_t>(prompt_tokens, 1);
  const int64_t length = std::ssize(chain);
  return impl_->Match(chain,
                      {.unit = unit,
                       .units = std::min(length, (prompt_tokens - 1) / unit),
                       .prompt_units = std::min(length, prompt_tokens / unit),
                       .prompt_tokens = prompt_tokens,
                       .policy = policy},
                      workers);
}

std::vector<GroupSpec> PrefixIndex::Groups(WorkerId worker) const {
  return impl_->ReadWorker(worker, std::vector<GroupSpec>(),
                           [](const WorkerState& state) { return state.catalogue.Specs(); });
}

int64_t PrefixIndex::hash_block_size(WorkerId worker) const {
  return impl_->ReadWorker(worker, int64_t{0},
                           [](const WorkerState& state) { return state.catalogue.unit(); });
}

IndexCounters PrefixIndex::counters(WorkerId worker) const {
  return impl_->ReadWorker(worker, IndexCounters(), [](const WorkerState& state) {
    IndexCounters counters = state.counters;
    counters.residencies = state.total();
    return counters;
  });
}

}  // namespace kvcast
