// SPDX-License-Identifier: Apache-2.0
#include "kvcast/prefix_index.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "router/batch_ahead.h"
#include "router/group_catalogue.h"
#include "router/hit_report.h"
#include "router/match_query.h"
#include "router/place_table.h"
#include "router/removal_cursors.h"
#include "router/residency_map.h"
#include "router/seeded_hash.h"
#include "router/worker_rules.h"
#include "src/base/check.h"
#include "src/base/epoch.h"
#include "src/base/slab_arena.h"
#include "src/base/watched_mutex.h"

namespace kvcast {

using router::BatchAhead;
using router::GroupCatalogue;
using router::MatchQuery;
using router::PlaceId;
using router::PlaceTable;
using router::QueryShape;
using router::RemovalCursors;
using router::ResidencyMap;
using router::WorkerRules;
using router::WorkerSlot;
using router::WorkerView;
using Verdict = GroupCatalogue::Verdict;

namespace {

// Runs that a batch looks at for what is left of closed places, beside one for each of its hashes.
constexpr size_t kSweepRuns = 16;
// Runs that Reclaim looks at before it lets batches through.
constexpr size_t kReclaimRuns = 256;
// How often it looks whether they are through; it goes on all the same where they never end.
constexpr int kReclaimPatience = 1000;
// Readings of a query that found a batch under way before the query waits for the writer.
constexpr int kReadings = 4;

template <typename T>
void DeleteObject(void* /*context*/, uintptr_t object) {
  delete reinterpret_cast<T*>(object);
}

// A worker, or a hidden generation of one, as writers see it.
struct WorkerState {
  WorkerState(WorkerId worker, WorkerSlot slot, const WorkerConfig& with)
      : id(worker),
        view(std::make_unique<WorkerView>(worker, slot)),
        config(with),
        hit_reports(with.hit_reports) {
    if (config.digests) digest.emplace();
  }

  WorkerId id;
  std::unique_ptr<WorkerView> view;
  WorkerConfig config;
  GroupCatalogue catalogue;
  uint64_t catalogue_changes = 0;  // that the view's rules know of
  IndexCounters counters;
  std::array<uint64_t, kTiers> residencies{};
  router::HitReportState hit_reports;
  std::optional<ResidencyDigest> digest;
  std::array<std::vector<PlaceId>, kTiers> places;  // by tier and group

  uint64_t total() const {
    return std::accumulate(residencies.begin(), residencies.end(), uint64_t{0});
  }
  PlaceId PlaceAt(Tier tier, uint8_t group) const {
    const std::vector<PlaceId>& of_tier = places[static_cast<size_t>(tier)];
    return group < of_tier.size() ? of_tier[group] : router::kNoPlace;
  }
  // Counts what became of an event; whether it changes residency.
  bool Accept(Verdict verdict) {
    if (verdict == Verdict::kBad) ++counters.bad_events;
    if (verdict == Verdict::kUnknownKind) ++counters.unknown_kinds;
    if (verdict == Verdict::kIndexAssumed) ++counters.assumed_kinds;
    return verdict == Verdict::kIndex || verdict == Verdict::kIndexAssumed;
  }
};

// A batch's removals since the last event of another kind, and where the last of them took from.
struct Removals {
  RemovalCursors cursors;
  const BlockRemoved* last = nullptr;
  Tier tier = Tier::kGpu;
  uint8_t group = 0;
  PlaceId place = router::kNoPlace;
};

// The registered workers, for readers. Never changed: who comes or goes makes another one.
struct Roster {
  using ById = std::vector<std::pair<WorkerId, const WorkerView*>>;

  std::vector<const WorkerView*> by_order;  // of registration
  ById by_id;                               // sorted

  const WorkerView* Find(WorkerId id) const {
    const auto it = PositionOf(id);
    return it != by_id.end() && it->first == id ? it->second : nullptr;
  }
  ById::const_iterator PositionOf(WorkerId id) const {
    return std::lower_bound(by_id.begin(), by_id.end(), id,
                            [](const auto& entry, WorkerId value) { return entry.first < value; });
  }
  // The same with `view` in place of what it has of that worker; nullptr: with nothing there.
  std::unique_ptr<Roster> With(WorkerId id, const WorkerView* view) const {
    auto roster = std::make_unique<Roster>(*this);
    const auto it = roster->by_id.begin() + (PositionOf(id) - by_id.begin());
    const bool known = it != roster->by_id.end() && it->first == id;
    if (!known && view != nullptr) {
      roster->by_id.emplace(it, id, view);
      roster->by_order.push_back(view);
    } else if (known) {
      auto& order = roster->by_order;
      const auto at = std::find(order.begin(), order.end(), it->second);
      if (view != nullptr) {
        *at = it->second = view;
      } else {
        order.erase(at);
        roster->by_id.erase(it);
      }
    }
    return roster;
  }
};

}  // namespace

// Writers take turns; readers take no lock. A reader finds the workers in the roster and what they
// hold in the map, and knows from a worker's version whether it has read it between two batches; if
// not, it reads that worker again.
class PrefixIndex::Impl {
 public:
  ~Impl();
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
  void ForEachResidency(WorkerId id, const std::function<void(Tier, uint8_t group, const BlockHash&,
                                                              uint32_t copies)>& visit) const;
  std::vector<WorkerMatch> Match(std::span<const BlockHash> chain, const QueryShape& shape,
                                 std::span<const WorkerId> ids) const;
  // What `read` says of the worker; `absent` if there is none.
  template <typename T, typename Read>
  T ReadWorker(WorkerId id, T absent, Read read) const {
    WatchedLock lock(mutex_);
    const auto it = slot_of_.find(id);
    return it == slot_of_.end() ? absent : read(*slots_[it->second]);
  }

 private:
  // Ends a change of the worker: queries see all of it from here on, and saw nothing of it before.
  void Commit(WorkerState& worker) KV_REQUIRES(mutex_);
  WorkerSlot TakeSlot() KV_REQUIRES(mutex_);
  WorkerState& Enter(WorkerId id, const WorkerConfig& config, GroupCatalogue catalogue)
      KV_REQUIRES(mutex_);
  void Leave(WorkerSlot slot) KV_REQUIRES(mutex_);
  // Shows readers the worker, or that it is gone.
  void Show(WorkerId id, const WorkerView* view) KV_REQUIRES(mutex_);
  void ForgetHidden(WorkerId id) KV_REQUIRES(mutex_);
  std::vector<size_t> ApplyTo(WorkerState& worker, const EventBatch& batch) KV_REQUIRES(mutex_);
  void ClearTier(WorkerState& worker, Tier tier) KV_REQUIRES(mutex_);
  bool SweepSome(size_t runs) KV_REQUIRES(mutex_);
  PlaceId OpenPlace(WorkerState& worker, Tier tier, uint8_t group) KV_REQUIRES(mutex_);
  // Number of leading events that repeat what the index has, and are to be left out.
  size_t SkipHitReport(WorkerState& worker, std::span<const Event> events) KV_REQUIRES(mutex_);
  void ApplyEvent(WorkerState& worker, const BlockStored& event, BatchAhead& ahead)
      KV_REQUIRES(mutex_);
  void ApplyEvent(WorkerState& worker, const BlockRemoved& event, BatchAhead& ahead,
                  Removals& removals) KV_REQUIRES(mutex_);
  void ApplyEvent(WorkerState& worker, const AllBlocksCleared& event) KV_REQUIRES(mutex_);
  // Puts the query to `ids`, or to all.
  static void AskAll(const Roster& roster, std::span<const WorkerId> ids, MatchQuery& query);

  mutable WatchedMutex mutex_;
  SlabArena arena_;
  mutable EpochDomain epochs_;
  PlaceTable places_{epochs_};
  ResidencyMap map_{router::ProcessSeed(), arena_, epochs_, places_};
  std::unordered_map<WorkerId, WorkerSlot> slot_of_ KV_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<WorkerState>> slots_ KV_GUARDED_BY(mutex_);
  std::vector<WorkerSlot> free_slots_ KV_GUARDED_BY(mutex_);
  std::unordered_map<WorkerId, WorkerSlot> hidden_of_ KV_GUARDED_BY(mutex_);
  std::vector<PlaceId> closing_ KV_GUARDED_BY(mutex_);  // by the change in work
  std::atomic<const Roster*> roster_{new Roster};
};

PrefixIndex::Impl::~Impl() {
  delete roster_.load(std::memory_order_relaxed);
  for (const std::unique_ptr<WorkerState>& worker : slots_) {
    if (worker) delete worker->view->rules.load(std::memory_order_relaxed);
  }
}

void PrefixIndex::Impl::Commit(WorkerState& worker) {
  WorkerView& view = *worker.view;
  const WorkerRules* const known = view.rules.load(std::memory_order_relaxed);
  const WorkerRules* rules = known;
  if (worker.catalogue_changes != worker.catalogue.changes() || known == nullptr) {
    worker.catalogue_changes = worker.catalogue.changes();
    rules = new WorkerRules(worker.id, worker.config, worker.catalogue);
  }
  // Readers wait from here to the end of the version's change, and for nothing else.
  const uint64_t version = view.version.load(std::memory_order_relaxed);
  view.version.store(version + 1, std::memory_order_release);
  for (const PlaceId place : closing_) places_.Close(place);
  map_.Publish();
  view.rules.store(rules, std::memory_order_release);
  view.certain.store(worker.hit_reports.none(), std::memory_order_release);
  view.version.store(version + 2, std::memory_order_release);
  closing_.clear();
  map_.Tidy();
  if (known != nullptr && known != rules) {
    epochs_.Retire(DeleteObject<const WorkerRules>, nullptr, reinterpret_cast<uintptr_t>(known));
  }
}

void PrefixIndex::Impl::Show(WorkerId id, const WorkerView* view) {
  const Roster* const old = roster_.load(std::memory_order_relaxed);
  roster_.store(old->With(id, view).release(), std::memory_order_release);
  epochs_.Retire(DeleteObject<const Roster>, nullptr, reinterpret_cast<uintptr_t>(old));
}

Status PrefixIndex::Impl::AddWorker(WorkerId id, const WorkerConfig& config) {
  Result<GroupCatalogue> catalogue = GroupCatalogue::FromConfig(config);
  if (!catalogue.ok()) return catalogue.status();
  WatchedLock lock(mutex_);
  if (slot_of_.contains(id)) {
    return Status(StatusCode::kFailedPrecondition, "worker is registered already");
  }
  if (slot_of_.size() >= kMaxIndexWorkers) return Status(StatusCode::kLimit, "too many workers");
  WorkerState& worker = Enter(id, config, std::move(catalogue).value());
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
                                      GroupCatalogue catalogue) {
  const WorkerSlot slot = TakeSlot();
  slots_[slot] = std::make_unique<WorkerState>(id, slot, config);
  WorkerState& worker = *slots_[slot];
  worker.catalogue = std::move(catalogue);
  Commit(worker);
  return worker;
}

// REQUIRES: the roster does not name it.
void PrefixIndex::Impl::Leave(WorkerSlot slot) {
  WorkerState& worker = *slots_[slot];
  for (int tier = 0; tier < kTiers; ++tier) ClearTier(worker, static_cast<Tier>(tier));
  // Odd for good: who still asks for it must look for the worker again.
  worker.view->version.fetch_add(1, std::memory_order_release);
  for (const PlaceId place : closing_) places_.Close(place);
  closing_.clear();
  epochs_.Retire(DeleteObject<const WorkerRules>, nullptr,
                 reinterpret_cast<uintptr_t>(worker.view->rules.load(std::memory_order_relaxed)));
  epochs_.Retire(DeleteObject<WorkerView>, nullptr,
                 reinterpret_cast<uintptr_t>(worker.view.release()));
  slots_[slot].reset();
  free_slots_.push_back(slot);
}

void PrefixIndex::Impl::BeginHidden(WorkerId id) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  ForgetHidden(id);
  const WorkerState& worker = *slots_[it->second];
  WorkerState& hidden = Enter(id, worker.config, worker.catalogue);
  hidden_of_.emplace(id, hidden.view->slot);
}

void PrefixIndex::Impl::ForgetHidden(WorkerId id) {
  const auto it = hidden_of_.find(id);
  if (it == hidden_of_.end()) return;
  Leave(it->second);
  hidden_of_.erase(it);
}

void PrefixIndex::Impl::DropHidden(WorkerId id) {
  WatchedLock lock(mutex_);
  ForgetHidden(id);
}

void PrefixIndex::Impl::ApplyHidden(WorkerId id, const EventBatch& batch) {
  WatchedLock lock(mutex_);
  const auto it = hidden_of_.find(id);
  if (it != hidden_of_.end()) ApplyTo(*slots_[it->second], batch);
}

void PrefixIndex::Impl::SwapHidden(WorkerId id) {
  WatchedLock lock(mutex_);
  const auto hidden = hidden_of_.find(id);
  if (hidden == hidden_of_.end()) return;
  WorkerSlot& slot = slot_of_.at(id);
  slots_[hidden->second]->counters = slots_[slot]->counters;
  const WorkerSlot old = std::exchange(slot, hidden->second);
  hidden_of_.erase(hidden);
  Show(id, slots_[slot]->view.get());
  Leave(old);
}

void PrefixIndex::Impl::RemoveWorker(WorkerId id) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  ForgetHidden(id);
  const WorkerSlot slot = it->second;
  slot_of_.erase(it);
  Show(id, nullptr);
  Leave(slot);
}

bool PrefixIndex::Impl::SweepSome(size_t runs) {
  if (!places_.sweeping()) {
    if (!places_.BeginSweep()) return false;
    map_.BeginSweep();
  }
  if (map_.Sweep(runs)) return true;
  map_.EndSweep();
  places_.EndSweep();
  return places_.any_closed();
}

bool PrefixIndex::Impl::Reclaim() {
  bool any = false;
  for (bool more = true; more;) {
    // No sleep: who wakes up takes a core from somebody, a query's perhaps.
    for (int i = 0; i < kReclaimPatience && mutex_.awaited(); ++i) std::this_thread::yield();
    WatchedLock lock(mutex_);
    any = any || places_.any_closed();
    more = SweepSome(kReclaimRuns);
    if (!more) epochs_.Collect();
  }
  return any;
}

ResidencyTotals PrefixIndex::Impl::HiddenDigests(WorkerId id) const {
  WatchedLock lock(mutex_);
  const auto it = hidden_of_.find(id);
  if (it == hidden_of_.end() || !slots_[it->second]->digest) return {};
  return slots_[it->second]->digest->Totals();
}

void PrefixIndex::Impl::ForEachResidency(
    WorkerId id,
    const std::function<void(Tier, uint8_t group, const BlockHash&, uint32_t copies)>& visit)
    const {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  map_.ForEach([&](PlaceId place, const BlockHash& hash, uint32_t copies) {
    const std::optional<router::Place> where = places_.Read(place);
    if (where && where->slot == it->second) visit(where->tier, where->group, hash, copies);
  });
}

void PrefixIndex::Impl::ClearWorker(WorkerId id, bool forget_groups) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  WorkerState& worker = *slots_[it->second];
  for (int tier = 0; tier < kTiers; ++tier) ClearTier(worker, static_cast<Tier>(tier));
  if (forget_groups) {
    Result<GroupCatalogue> catalogue = GroupCatalogue::FromConfig(worker.config);
    KV_CHECK(catalogue.ok());
    worker.catalogue = std::move(catalogue).value();
    worker.catalogue_changes = ~uint64_t{0};
  }
  Commit(worker);
}

Status PrefixIndex::Impl::LearnUnit(WorkerId id, int64_t unit) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return Status(StatusCode::kNotFound, "worker is not registered");
  WorkerState& worker = *slots_[it->second];
  if (worker.catalogue.LearnUnit(unit)) {
    Commit(worker);
    return Status();
  }
  return Status(StatusCode::kFailedPrecondition, "hash_block_size: against what is known");
}

void PrefixIndex::Impl::ClearTier(WorkerState& worker, Tier tier) {
  if (tier == Tier::kGpu) worker.hit_reports.Clear();
  if (worker.digest) worker.digest->Clear(tier);
  for (const PlaceId place : worker.places[static_cast<size_t>(tier)]) {
    if (place != router::kNoPlace) closing_.push_back(place);
  }
  worker.places[static_cast<size_t>(tier)].clear();
  worker.residencies[static_cast<size_t>(tier)] = 0;
}

PlaceId PrefixIndex::Impl::OpenPlace(WorkerState& worker, Tier tier, uint8_t group) {
  std::vector<PlaceId>& places = worker.places[static_cast<size_t>(tier)];
  if (places.size() <= group) places.resize(group + size_t{1}, router::kNoPlace);
  if (places[group] == router::kNoPlace) {
    places[group] = places_.Open({.slot = worker.view->slot, .group = group, .tier = tier});
  }
  return places[group];
}

std::vector<size_t> PrefixIndex::Impl::Apply(WorkerId id, const EventBatch& batch) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  return it == slot_of_.end() ? std::vector<size_t>() : ApplyTo(*slots_[it->second], batch);
}

std::vector<size_t> PrefixIndex::Impl::ApplyTo(WorkerState& worker, const EventBatch& batch) {
  std::vector<size_t> left_out;
  const uint64_t ops = worker.counters.stored_blocks + worker.counters.removed_blocks;
  BatchAhead ahead(map_, batch.events);
  Removals removals;
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const Event& event = batch.events[i];
    // No std::visit: the thread-safety analysis does not see a held lock inside a lambda.
    if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      ApplyEvent(worker, *removed, ahead, removals);
    } else if (const auto* stored = std::get_if<BlockStored>(&event)) {
      removals = {};
      if (const size_t skipped = SkipHitReport(worker, std::span(batch.events).subspan(i))) {
        for (size_t next = 0; next < skipped; ++next) left_out.push_back(i + next);
        i += skipped - 1;
        continue;
      }
      ApplyEvent(worker, *stored, ahead);
    } else {
      ApplyEvent(worker, std::get<AllBlocksCleared>(event));
    }
  }
  Commit(worker);
  if (places_.any_closed()) {
    SweepSome(kSweepRuns + worker.counters.stored_blocks + worker.counters.removed_blocks - ops);
  }
  return left_out;
}

size_t PrefixIndex::Impl::SkipHitReport(WorkerState& worker, std::span<const Event> events) {
  const router::HitReport report = router::ReadHitReport(
      events, worker.places[static_cast<size_t>(Tier::kGpu)], worker.catalogue, map_);
  if (!worker.hit_reports.Skips(report)) return 0;
  worker.counters.reannounced_blocks += report.blocks;
  return report.events;
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const BlockStored& event,
                                   BatchAhead& ahead) {
  const Tier tier = router::TierOf(event.medium);
  if (!worker.Accept(worker.catalogue.Store(event, tier))) return;
  const uint8_t group = GroupCatalogue::GroupOf(event.group_idx);
  const PlaceId place = OpenPlace(worker, tier, group);
  uint64_t& held = worker.residencies[static_cast<size_t>(tier)];
  ResidencyMap::Cursor cursor;
  if (event.parent_block_hash) map_.Seek(*event.parent_block_hash, cursor);
  size_t more = event.block_hashes.size();
  for (const BlockHash& hash : event.block_hashes) {
    ahead.Step();
    if (map_.Add(hash, place, --more, cursor)) ++held;
    if (worker.digest) worker.digest->Add(tier, group, hash);
  }
  worker.counters.stored_blocks += event.block_hashes.size();
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const BlockRemoved& event,
                                   BatchAhead& ahead, Removals& removals) {
  if (removals.last == nullptr || removals.last->group_idx != event.group_idx ||
      removals.last->medium != event.medium) {
    removals.last = nullptr;
    if (!worker.Accept(worker.catalogue.Remove(event))) return;
    removals.last = &event;
    removals.tier = router::TierOf(event.medium);
    removals.group = GroupCatalogue::GroupOf(event.group_idx);
    removals.place = worker.PlaceAt(removals.tier, removals.group);
  }
  uint64_t& held = worker.residencies[static_cast<size_t>(removals.tier)];
  ResidencyMap::Cursor& cursor = removals.cursors.At(removals.place);
  for (const BlockHash& hash : event.block_hashes) {
    ahead.Step();
    const router::Removal removal = map_.Remove(hash, removals.place, cursor);
    if (removal == router::Removal::kNotHeld) {
      ++worker.counters.unknown_removes;
      worker.hit_reports.NoteUnknownRemove();
      continue;
    }
    ++worker.counters.removed_blocks;
    if (worker.digest) worker.digest->Remove(removals.tier, removals.group, hash);
    if (removal == router::Removal::kLastCopy) --held;
  }
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const AllBlocksCleared& event) {
  ++worker.counters.clears;
  ClearTier(worker, router::TierOf(event.medium));
}

void PrefixIndex::Impl::AskAll(const Roster& roster, std::span<const WorkerId> ids,
                               MatchQuery& query) {
  if (ids.empty()) {
    for (const WorkerView* view : roster.by_order) query.Ask(*view);
  }
  for (const WorkerId id : ids) {
    if (const WorkerView* view = roster.Find(id)) query.Ask(*view);
  }
}

std::vector<WorkerMatch> PrefixIndex::Impl::Match(std::span<const BlockHash> chain,
                                                  const QueryShape& shape,
                                                  std::span<const WorkerId> ids) const {
  const EpochDomain::Pin pin(epochs_);
  for (int reading = 0; reading < kReadings;) {
    const Roster* const roster = roster_.load(std::memory_order_acquire);
    MatchQuery query(map_, places_, chain, shape);
    AskAll(*roster, ids, query);
    while (reading++ < kReadings) {
      if (query.Read()) return query.Answers();
      // Somebody came or went.
      if (roster_.load(std::memory_order_acquire) != roster) break;
    }
  }
  // Between two batches of all writers.
  WatchedLock lock(mutex_);
  MatchQuery query(map_, places_, chain, shape);
  AskAll(*roster_.load(std::memory_order_relaxed), ids, query);
  KV_CHECK(query.Read());
  return query.Answers();
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
void PrefixIndex::ForEachResidency(WorkerId worker,
                                   const std::function<void(Tier, uint8_t group, const BlockHash&,
                                                            uint32_t copies)>& visit) const {
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
