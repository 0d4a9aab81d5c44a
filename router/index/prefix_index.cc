// SPDX-License-Identifier: Apache-2.0
#include <thread>
#include <utility>
#include <variant>

#include "router/index/prefix_index_impl.h"

namespace kvcast {

using router::AmbiguousNames;
using router::BatchAhead;
using router::GroupCatalogue;
using router::IdleNames;
using router::MatchQuery;
using router::PlaceId;
using router::PlaceTable;
using router::QueryShape;
using router::RemovalCursors;
using router::Removals;
using router::ResidencyMap;
using router::Roster;
using router::WorkerRules;
using router::WorkerSlot;
using router::WorkerState;
using router::WorkerView;

namespace {

// Runs that a batch sweeps for blocks of closed places, in addition to one run for each of its
// hashes.
constexpr size_t kSweepRuns = 16;
// Runs that Reclaim sweeps before it releases the mutex.
constexpr size_t kReclaimRuns = 256;
// How often Reclaim checks for waiting batches before it goes on although they still wait.
constexpr int kReclaimPatience = 1000;
// Batches, in addition to one for each worker, before the index measures again the memory of its
// residencies.
constexpr size_t kLeastBatchesAWeighing = 16;
// Readings that a query tries without the mutex. After so many conflicts with batches it takes the
// mutex.
constexpr int kReadings = 4;

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
    delete worker->view->rules.load(std::memory_order_relaxed);
    delete worker->view->ambiguous.load(std::memory_order_relaxed);
  }
}

void PrefixIndex::Impl::Commit(WorkerState& worker) {
  WorkerView& view = *worker.view;
  const WorkerRules* const known = view.rules.load(std::memory_order_relaxed);
  const WorkerRules* rules = known;
  if (worker.catalogue_changes != worker.catalogue.changes() || known == nullptr) {
    worker.catalogue_changes = worker.catalogue.changes();
    rules = new WorkerRules(worker.id, worker.config, worker.catalogue, worker.shown);
  }
  const AmbiguousNames* const ambiguous_before = view.ambiguous.load(std::memory_order_relaxed);
  const AmbiguousNames* ambiguous = ambiguous_before;
  if (std::exchange(worker.ambiguous_changed, false)) {
    ambiguous = worker.ambiguous.empty() ? nullptr : new AmbiguousNames(worker.ambiguous);
  }
  // Queries wait only from here until the second store of the version. I1: the first store needs no
  // order of its own, because the stores of data are release stores (I2).
  const uint64_t version = view.version.load(std::memory_order_relaxed);          // I0
  view.version.store(version + 1, std::memory_order_release);                     // I1
  for (const PlaceId place : closing_) places_.Close(place);                      // I8
  map_.Publish();                                                                 // I2
  view.rules.store(rules, std::memory_order_release);                             // I2, I10
  view.certain.store(worker.hit_reports.certain(), std::memory_order_release);    // I2
  view.ambiguous.store(ambiguous, std::memory_order_release);                     // I2, I10
  view.has_unnamed.store(worker.total_unnamed() > 0, std::memory_order_release);  // I2
  view.has_named.store(worker.named_blocks > 0, std::memory_order_release);       // I2
  // I2
  view.unnamed_gpu.store(worker.unnamed[static_cast<size_t>(Tier::kGpu)],
                         std::memory_order_release);
  view.version.store(version + 2, std::memory_order_release);  // I1
  closing_.clear();
  map_.Tidy();
  if (known != nullptr && known != rules) {
    epochs_.Retire(DeleteObject<const WorkerRules>, nullptr, reinterpret_cast<uintptr_t>(known));
  }
  if (ambiguous_before != nullptr && ambiguous_before != ambiguous) {
    epochs_.Retire(DeleteObject<const AmbiguousNames>, nullptr,
                   reinterpret_cast<uintptr_t>(ambiguous_before));
  }
}

void PrefixIndex::Impl::Show(WorkerId id, const WorkerView* view) {
  const Roster* const old = roster_.load(std::memory_order_relaxed);        // I0
  roster_.store(old->With(id, view).release(), std::memory_order_release);  // I10
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
  worker.number = ++states_;
  Commit(worker);
  return worker;
}

// REQUIRES: the roster has no view of it.
void PrefixIndex::Impl::Leave(WorkerSlot slot) {
  WorkerState& worker = *slots_[slot];
  for (int tier = 0; tier < kTiers; ++tier) ClearTier(worker, static_cast<Tier>(tier));
  // I1: the version stays odd. A reader that still has this view retries with a new roster.
  worker.view->version.fetch_add(1, std::memory_order_release);
  for (const PlaceId place : closing_) places_.Close(place);
  closing_.clear();
  epochs_.Retire(DeleteObject<const WorkerRules>, nullptr,
                 reinterpret_cast<uintptr_t>(worker.view->rules.load(std::memory_order_relaxed)));
  if (const auto* ambiguous = worker.view->ambiguous.load(std::memory_order_relaxed)) {
    epochs_.Retire(DeleteObject<const AmbiguousNames>, nullptr,
                   reinterpret_cast<uintptr_t>(ambiguous));
  }
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
  // Enter may move the list of slots, but not the workers.
  WorkerState& hidden = Enter(id, worker.config, worker.catalogue);
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
  WorkerState& elder = *slots_[slot];
  WorkerState& younger = *slots_[hidden->second];
  younger.elder = nullptr;
  younger.counters = elder.counters;
  younger.idle = std::move(elder.idle);
  younger.parked.TakeAll(elder.parked);
  younger.named_blocks += elder.named_blocks;
  younger.lower_names |= elder.lower_names;
  younger.shown = elder.shown;
  if (younger.has_gpu_copies) younger.hit_reports.NoteForeignCopies();
  younger.sample = std::move(elder.sample);
  younger.announced |= elder.announced;
  younger.evidence = std::move(elder.evidence);
  younger.evidence.ForgetBlocks();
  // It is unknown how often the blocks of the hidden generation were stored.
  if (younger.residencies[static_cast<size_t>(Tier::kGpu)] > 0) younger.evidence.Close();
  younger.catalogue_changes = ~uint64_t{0};
  younger.ambiguous.AddAll(elder.ambiguous);
  younger.ambiguous_changed = true;
  Commit(younger);
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
    // Does not sleep: the wake-up would take a core from another thread, which may run a query.
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
    ForgetNames(worker);
  }
  worker.evidence.ForgetBlocks();
  // The engine may still hold the blocks that the index forgets here.
  if (!forget_groups) worker.evidence.Close();
  Commit(worker);
}

void PrefixIndex::Impl::NoteMissedBlocks(WorkerId id) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it != slot_of_.end()) slots_[it->second]->evidence.Close();
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

void PrefixIndex::Impl::LearnRules(WorkerId id, EngineRules rules) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return;
  WorkerState& worker = *slots_[it->second];
  if (worker.shown.rules == rules) return;
  worker.shown.rules = rules;
  worker.catalogue_changes = ~uint64_t{0};
  Commit(worker);
}

void PrefixIndex::Impl::ClearTier(WorkerState& worker, Tier tier) {
  if (tier == Tier::kGpu) {
    worker.hit_reports.Clear();
    worker.evidence.ForgetBlocks();
    worker.sample.Clear();
  }
  if (worker.digest) worker.digest->Clear(tier);
  for (const PlaceId place : worker.places[static_cast<size_t>(tier)]) {
    if (place != router::kNoPlace) closing_.push_back(place);
  }
  worker.places[static_cast<size_t>(tier)].clear();
  worker.own.clear();
  for (const std::vector<PlaceId>& of_tier : worker.places) {
    for (const PlaceId place : of_tier) {
      if (place != router::kNoPlace) worker.own.push_back(place);
    }
  }
  worker.residencies[static_cast<size_t>(tier)] = 0;
  worker.unnamed[static_cast<size_t>(tier)] = 0;
}

void PrefixIndex::Impl::ForgetNames(WorkerState& worker) {
  worker.idle.Clear();
  worker.parked.Clear();
  worker.ambiguous = {};
  worker.ambiguous_changed = true;
  worker.rule_refuted = false;
  worker.named_blocks = 0;
  worker.lower_names = false;
  worker.shown = {};
  worker.evidence = {};
  worker.sample.Clear();
  worker.announced = 0;
  worker.catalogue_changes = ~uint64_t{0};
}

PlaceId PrefixIndex::Impl::OpenPlace(WorkerState& worker, Tier tier, uint8_t group) {
  std::vector<PlaceId>& places = worker.places[static_cast<size_t>(tier)];
  if (places.size() <= group) places.resize(group + size_t{1}, router::kNoPlace);
  if (places[group] == router::kNoPlace) {
    places[group] = places_.Open({.slot = worker.view->slot, .group = group, .tier = tier});
    worker.own.push_back(places[group]);
  }
  return places[group];
}

ApplyResult PrefixIndex::Impl::Apply(WorkerId id, const EventBatch& batch) {
  ApplyResult result;
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return result;
  WorkerState& worker = *slots_[it->second];
  const uint64_t unknown_removes = worker.counters.unknown_removes;
  result.left_out = ApplyTo(worker, batch);
  result.unknown_removes = worker.counters.unknown_removes - unknown_removes;
  result.counters = CountersOf(worker);
  if (worker.digest) result.digests = worker.digest->Totals();
  return result;
}

std::vector<size_t> PrefixIndex::Impl::ApplyTo(WorkerState& worker, const EventBatch& batch) {
  std::vector<size_t> left_out;
  const uint64_t ops = worker.counters.stored_blocks + worker.counters.removed_blocks;
  NoteNews(worker, batch);
  if (weigh_in_-- == 0) WeighResidencies();
  worker.sample.BeginBatch();
  BatchAhead ahead(map_, batch.events, {worker.idle, fingerprint_});
  Removals removals;
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const Event& event = batch.events[i];
    // Not std::visit, because the thread-safety analysis does not see a held lock inside a lambda.
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

void PrefixIndex::Impl::WeighResidencies() {
  uint64_t residencies = 0;
  for (const std::unique_ptr<WorkerState>& worker : slots_) {
    if (worker) residencies += worker->total();
  }
  if (residencies > 0) {
    bytes_a_residency_ = static_cast<double>(arena_.bytes()) / static_cast<double>(residencies);
  }
  weigh_in_ = kLeastBatchesAWeighing + slots_.size();
}

size_t PrefixIndex::Impl::SkipHitReport(WorkerState& worker, std::span<const Event> events) {
  if (!worker.hit_reports.looks()) return 0;
  const router::HitReport report =
      router::ReadHitReport(events, worker.places[static_cast<size_t>(Tier::kGpu)],
                            worker.catalogue, map_, worker.config.replay_tokens.value_or(0));
  const bool skips = worker.hit_reports.Skips(report);
  if (report.reading == router::HitReportReading::kMaybe ||
      report.reading == router::HitReportReading::kUnclear) {
    for (const Event& event : events.first(report.events)) {
      const auto& stored = std::get<BlockStored>(event);
      const uint8_t group = GroupCatalogue::GroupOf(stored.group_idx);
      const PlaceId place = worker.PlaceAt(Tier::kGpu, group);
      for (const BlockHash& hash : stored.block_hashes) {
        const bool held = place != router::kNoPlace && map_.Holds(hash, place);
        worker.hit_reports.NoteDoubtful(FingerprintOf(hash, group), held);
      }
    }
  }
  if (!skips) return 0;
  worker.counters.reannounced_blocks += report.blocks;
  return report.events;
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const BlockStored& event,
                                   BatchAhead& ahead) {
  const Tier tier = TierOf(event.medium);
  if (!worker.Accept(worker.catalogue.Store(event, tier))) return;
  const uint8_t group = GroupCatalogue::GroupOf(event.group_idx);
  const PlaceId place = OpenPlace(worker, tier, group);
  ResidencyMap::Cursor cursor;
  const router::SpanStart start = StartOf(worker, event, cursor);
  ReadContent(worker, event, tier, group, start);
  if (content_.bad) ++worker.counters.bad_stores;
  if (tier == Tier::kGpu) NoteLookahead(worker, event);
  const auto stride = static_cast<uint32_t>(event.block_size);
  const bool looks = worker.learns_reuse() && tier == Tier::kGpu && !event.block_hashes.empty();
  bool added_first = false;
  const bool placed = content_.dense && (start.at_root || start.end > 0);
  const auto end = [&](size_t i) {
    return placed ? start.end + static_cast<uint32_t>(i + 1) * stride : uint32_t{0};
  };
  const StoreTarget target = {.tier = tier,
                              .group = group,
                              .holding = {.own = worker.own,
                                          .place = place,
                                          .source = worker.number,
                                          .repeats_count = !worker.config.repeats_are_refreshes}};
  size_t more = event.block_hashes.size();
  for (size_t i = 0; i < event.block_hashes.size(); ++i) {
    ahead.Step();
    const BlockHash& hash = event.block_hashes[i];
    const ContentKey content = content_.contents[i];
    const router::BlockName name =
        content == kUnnamed ? router::BlockName() : router::BlockName(content, stride, end(i));
    worker.lower_names |= tier != Tier::kGpu && name.named();
    const bool added = Hold(worker, target, hash, name, --more, content_.dense, cursor);
    if (i == 0) added_first = added;
    if (worker.digest) worker.digest->Add(tier, group, hash);
  }
  if (looks && worker.evidence.open()) NoteReuse(worker, event, group, start, added_first);
  worker.announced |= uint64_t{1} << group;
  if (tier == Tier::kGpu) {
    worker.sample.NoteStore({.event = event,
                             .start = start,
                             .content = content_,
                             .group = group,
                             .held = worker.residencies[static_cast<size_t>(Tier::kGpu)],
                             .index_bytes = static_cast<uint64_t>(
                                 static_cast<double>(worker.total()) * bytes_a_residency_),
                             .unit = worker.catalogue.unit(),
                             .lookahead = worker.shown.lookahead},
                            keys_);
  }
  worker.counters.stored_blocks += event.block_hashes.size();
  const auto& parent = event.parent_block_hash;
  const bool waits = content_.reason == UnnamedReason::kUnknownParent && parent && !start.at_root &&
                     start.parent == kUnnamed && content_.parent == kUnnamed &&
                     router::HasUsableTokens(event) && !event.block_hashes.empty();
  if (waits) worker.parked.Park(FingerprintOf(*parent), event);
  const ContentKey told_parent = content_.parent;
  // NameParked overwrites content_.
  std::vector<ContentKey> contents;
  if (!worker.parked.empty()) contents = content_.contents;
  if (parent && told_parent != kUnnamed) {
    ResidencyMap::Cursor before;
    Learn(worker, *parent, {told_parent, stride}, false, before);
    NameParked(worker, *parent, told_parent);
  }
  for (size_t i = 0; i < contents.size(); ++i) {
    if (contents[i] != kUnnamed) NameParked(worker, event.block_hashes[i], contents[i]);
  }
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const BlockRemoved& event,
                                   BatchAhead& ahead, Removals& removals) {
  if (removals.last == nullptr || removals.last->group_idx != event.group_idx ||
      removals.last->medium != event.medium) {
    removals.last = nullptr;
    if (!worker.Accept(worker.catalogue.Remove(event))) return;
    removals.last = &event;
    removals.tier = TierOf(event.medium);
    removals.group = GroupCatalogue::GroupOf(event.group_idx);
    removals.place = worker.PlaceAt(removals.tier, removals.group);
  }
  uint64_t& held = worker.residencies[static_cast<size_t>(removals.tier)];
  ResidencyMap::Cursor& cursor = removals.cursors.At(removals.place);
  for (const BlockHash& hash : event.block_hashes) {
    ahead.Step();
    router::BlockName name;
    const router::Removal removal = map_.Remove(hash, removals.place, cursor, &name);
    if (removals.tier == Tier::kGpu && worker.hit_reports.has_doubtful()) {
      worker.hit_reports.NoteRemoved(FingerprintOf(hash, removals.group),
                                     removal != router::Removal::kCopiesLeft);
    }
    if (removal == router::Removal::kNotHeld) {
      ++worker.counters.unknown_removes;
      worker.hit_reports.NoteUnknownRemove();
      continue;
    }
    ++worker.counters.removed_blocks;
    if (worker.digest) worker.digest->Remove(removals.tier, removals.group, hash);
    if (removal != router::Removal::kLastCopy) continue;
    --held;
    if (removals.tier == Tier::kGpu && worker.learns_reuse()) {
      worker.evidence.NoteRemoved(FingerprintOf(hash), removals.group);
      // The next store of an unnamed block that was removed cannot be recognised.
      if (!name.named()) worker.evidence.Close();
    }
    if (name.named()) {
      worker.idle.Put(FingerprintOf(hash), name.content());
    } else {
      --worker.unnamed[static_cast<size_t>(removals.tier)];
    }
  }
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const AllBlocksCleared& event) {
  ++worker.counters.clears;
  ClearTier(worker, TierOf(event.medium));
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

PromptShape PrefixIndex::Impl::ShapeOf(WorkerId id) const {
  const EpochDomain::Pin pin(epochs_);
  const WorkerView* const view = roster_.load(std::memory_order_acquire)->Find(id);  // I10
  if (view == nullptr) return {};
  const WorkerRules& rules = *view->rules.load(std::memory_order_acquire);  // I10
  return {.unit = rules.unit,
          .lookahead = rules.lookahead,
          // Each value is current by itself. No version is checked.
          .has_unnamed = view->has_unnamed.load(std::memory_order_acquire),
          .has_named = view->has_named.load(std::memory_order_acquire),
          .has_chunks = rules.has_chunks};
}

ContentKey PrefixIndex::Impl::ContentOf(WorkerId id, const BlockHash& hash) {
  WatchedLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return kUnnamed;
  ResidencyMap::Cursor cursor;
  const auto name = map_.NameOf(hash, slots_[it->second]->own, cursor);
  return name ? name->content() : kUnnamed;
}

std::vector<WorkerMatch> PrefixIndex::Impl::Match(const PromptBlocks& prompt,
                                                  const QueryShape& shape,
                                                  std::span<const WorkerId> ids) const {
  const EpochDomain::Pin pin(epochs_);
  for (int reading = 0; reading < kReadings;) {
    const Roster* const roster = roster_.load(std::memory_order_acquire);  // I10
    MatchQuery query(map_, places_, prompt, shape);
    AskAll(*roster, ids, query);
    while (reading++ < kReadings) {
      if (query.Read()) return query.Answers();
      // A worker was added or removed (I10).
      if (roster_.load(std::memory_order_acquire) != roster) break;
    }
  }
  // Under the mutex no version is odd.
  WatchedLock lock(mutex_);
  MatchQuery query(map_, places_, prompt, shape);
  AskAll(*roster_.load(std::memory_order_relaxed), ids, query);  // I0
  KV_CHECK(query.Read());
  return query.Answers();
}

PrefixIndex::PrefixIndex(const ContentKeys& keys) : impl_(std::make_unique<Impl>(keys)) {}
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
void PrefixIndex::NoteMissedBlocks(WorkerId worker) { impl_->NoteMissedBlocks(worker); }
void PrefixIndex::LearnRules(WorkerId worker, EngineRules rules) {
  impl_->LearnRules(worker, rules);
}
size_t PrefixIndex::NameBlocks(WorkerId worker, std::span<const BlockHash> hashes,
                               std::span<const ContentKey> contents) {
  return impl_->NameBlocks(worker, hashes, contents);
}
ApplyResult PrefixIndex::Apply(WorkerId worker, const EventBatch& batch) {
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
  return Match({.unit = unit, .prompt_tokens = prompt_tokens, .hashes = chain}, workers, policy);
}

std::vector<WorkerMatch> PrefixIndex::Match(const PromptBlocks& prompt,
                                            std::span<const WorkerId> workers,
                                            MatchPolicy policy) const {
  const int64_t unit = prompt.unit;
  if (unit <= 0 || unit > kMaxBlockSize || prompt.lookahead < 0) return {};
  const int64_t tokens = std::max<int64_t>(prompt.prompt_tokens, 1);
  const int64_t given = std::max(std::ssize(prompt.contents), std::ssize(prompt.hashes));
  const int64_t units = std::min(given, std::max<int64_t>(0, tokens - prompt.lookahead) / unit);
  return impl_->Match(prompt,
                      {.unit = unit,
                       .units = std::min(units, (tokens - 1) / unit),
                       .prompt_units = units,
                       .prompt_tokens = tokens,
                       .policy = policy},
                      workers);
}

const ContentKeys& PrefixIndex::keys() const { return impl_->keys(); }

ContentKey PrefixIndex::ContentOf(WorkerId worker, const BlockHash& hash) const {
  return impl_->ContentOf(worker, hash);
}

PromptShape PrefixIndex::ShapeOf(WorkerId worker) const { return impl_->ShapeOf(worker); }

std::vector<GroupSpec> PrefixIndex::Groups(WorkerId worker) const {
  return impl_->ReadWorker(worker, std::vector<GroupSpec>(),
                           [](const WorkerState& state) { return state.catalogue.Specs(); });
}

int64_t PrefixIndex::hash_block_size(WorkerId worker) const {
  return impl_->ReadWorker(worker, int64_t{0},
                           [](const WorkerState& state) { return state.catalogue.unit(); });
}

IndexCounters PrefixIndex::Impl::CountersOf(const WorkerState& state) {
  IndexCounters counters = state.counters;
  counters.residencies = state.total();
  if (state.catalogue.one_hash_per_block()) {
    counters.whole_gpu_blocks = state.residencies[static_cast<size_t>(Tier::kGpu)];
  }
  counters.unnamed = state.total_unnamed();
  counters.dropped_stores = state.parked.dropped();
  counters.unnamed_gpu = state.unnamed[static_cast<size_t>(Tier::kGpu)];
  counters.forgotten_names = state.idle.forgotten();
  return counters;
}

IndexCounters PrefixIndex::counters(WorkerId worker) const {
  return impl_->ReadWorker(worker, IndexCounters(), &Impl::CountersOf);
}

uint64_t PrefixIndex::writer_locks() const { return impl_->writer_locks(); }

std::string_view UntoldName(Untold property) {
  switch (property) {
    case Untold::kKinds:
      return "kinds";
    case Untold::kWindow:
      return "window";
    case Untold::kChunkSize:
      return "chunk_size";
    case Untold::kGroups:
      return "groups";
    case Untold::kEagle:
      return "eagle";
    case Untold::kReplay:
      return "replay";
    case Untold::kBlockSize:
      return "block_size";
    case Untold::kAlignment:
      return "alignment";
    case Untold::kOffloadRule:
      return "offload_rule";
    case Untold::kLoadEnd:
      return "load_end";
    case Untold::kRelease:
      break;
  }
  return "release";
}

std::string_view UnnamedReasonName(UnnamedReason reason) {
  constexpr std::array<std::string_view, kUnnamedReasons> kNames = {
      "no_tokens", "unknown_parent", "sparse", "hidden_content", "ambiguous"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace kvcast
