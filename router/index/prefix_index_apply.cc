// The part of PrefixIndex::Impl that applies events, and that removes blocks of closed holders.
// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <variant>

#include "router/index/prefix_index_impl.h"

namespace kvcast {

using router::BatchAhead;
using router::GroupRegistry;
using router::HolderId;
using router::Removals;
using router::ResidencyMap;
using router::WorkerState;

namespace {

// A visited run and a freed slot count as one unit of sweep work each. After a batch, the sweep
// does kSweepWork units, and kSweepWorkOfABlock units for each block that the batch stored or
// removed. In the worst case, each stored block takes a slot in a run of its own. Two units of work
// visit one such run and free its slot, so sweeps free slots at least as fast as stores take slots.
constexpr size_t kSweepWork = 16;
constexpr size_t kSweepWorkOfABlock = 2;
// The work of Reclaim before it releases the mutex.
constexpr size_t kReclaimWork = 4096;
// The index measures the memory of its residencies once in about n batches. n is this number plus
// the number of worker slots.
constexpr size_t kLeastBatchesAWeighing = 16;

}  // namespace

ApplyResult PrefixIndex::Impl::Apply(WorkerId id, const EventBatch& batch) {
  ApplyResult result;
  router::BatchLock lock(mutex_);
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
  uint64_t paused_at = ops;
  NoteNews(worker, batch);
  if (weigh_in_-- == 0) WeighResidencies();
  worker.sample.BeginBatch();
  BatchAhead ahead(map_, router::HashesOfBatch(batch.events), {worker.idle, fingerprint_});
  Removals removals;
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const Event& event = batch.events[i];
    const uint64_t done = i + worker.counters.stored_blocks + worker.counters.removed_blocks;
    if (done - paused_at >= kPauseAfter) {
      paused_at = done;
      // Other batches may replace the memory that the cursors use.
      if (PauseIfAwaited()) removals = {};
    }
    // Not std::visit, because the thread-safety analysis does not support a held lock inside a
    // lambda.
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
      removals = {};  // the clear closes the holder that `removals` names
      ApplyEvent(worker, std::get<AllBlocksCleared>(event));
    }
  }
  Commit(worker);
  const uint64_t blocks = worker.counters.stored_blocks + worker.counters.removed_blocks - ops;
  SweepAfter(kSweepWork + kSweepWorkOfABlock * blocks);
  return left_out;
}

void PrefixIndex::Impl::SweepAfter(size_t work) {
  // A sweep requires that all changes are published. The changes of a paused batch are not
  // published.
  while (work > 0 && holder_table_.any_closed() && !mutex_.any_paused()) {
    const size_t part = std::min(work, kPauseAfter);
    SweepSome(part);
    work -= part;
    if (work > 0) PauseIfAwaited();
  }
}

bool PrefixIndex::Impl::PauseIfAwaited() {
  if (!mutex_.awaited()) return false;
  OpenBatch batch;
  SwapBatch(batch);
  mutex_.Pause();
  SwapBatch(batch);
  return true;
}

void PrefixIndex::Impl::SwapBatch(OpenBatch& batch) {
  std::swap(content_, batch.content);
  news_.swap(batch.news);
  closing_.swap(batch.closing);
  map_.SwapUnpublished(batch.unpublished);
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
  if (!worker.hit_reports.must_read_stores()) return 0;
  router::HitReport report =
      router::ReadHitReport(events, worker.holders.of(Tier::kGpu), worker.registry, worker.config,
                            worker.lookahead(), map_);
  const auto& first = std::get<BlockStored>(events[0]);
  if (!worker.hit_reports.Affords(first.block_hashes.size(), report.compared)) {
    report = {.reading = router::HitReportReading::kUnclear};
  }
  const bool skips = worker.hit_reports.Skips(report);
  if (report.reading == router::HitReportReading::kMaybe ||
      report.reading == router::HitReportReading::kUnclear) {
    for (const Event& event : events.first(report.events)) {
      const auto& stored = std::get<BlockStored>(event);
      const uint8_t group = GroupRegistry::GroupOf(stored.group_idx);
      const HolderId holder = worker.holders.At(Tier::kGpu, group);
      for (const BlockHash& hash : stored.block_hashes) {
        const bool held = holder != router::kNoHolderId && map_.Holds(hash, holder);
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
  const bool merged = worker.elder != nullptr;
  if (!worker.Accept(worker.registry.Store(event, tier, merged), tier, event.group_idx)) return;
  const uint8_t group = GroupRegistry::GroupOf(event.group_idx);
  const HolderId holder = OpenHolder(worker, tier, group);
  ResidencyMap::Cursor cursor;
  const router::SpanStart start = StartOf(worker, event, cursor);
  ReadContent(worker, event, tier, group, start);
  if (content_.bad) ++worker.counters.bad_stores;
  if (tier == Tier::kGpu) NoteLookahead(worker, event);
  const bool may_show_reuse =
      worker.learns_reuse() && tier == Tier::kGpu && !event.block_hashes.empty();
  CurrentStore store = {.event = event,
                        .tier = tier,
                        .group = group,
                        .start = start,
                        .holding = {.own = worker.holders.all(),
                                    .holder = holder,
                                    .source = worker.number,
                                    .repeats_count = !worker.config.repeats_are_refreshes,
                                    .unit = worker.hash_unit()},
                        .cursor = cursor};
  const bool added_first = HoldAll(worker, store, ahead);
  if (may_show_reuse && worker.evidence.open()) NoteReuse(worker, event, group, start, added_first);
  worker.announced |= uint64_t{1} << group;
  if (tier == Tier::kGpu) SampleStore(worker, store);
  worker.counters.stored_blocks += event.block_hashes.size();
  PassNames(worker, event, start);
}

bool PrefixIndex::Impl::HoldAll(WorkerState& worker, CurrentStore& store, BatchAhead& ahead) {
  const BlockStored& event = store.event;
  const auto stride = static_cast<uint32_t>(event.block_size);
  const bool placed = content_.dense && (store.start.at_root || store.start.end > 0);
  const bool proven = content_.proven;
  const auto end = [&](size_t i) {
    if (!proven) return router::BlockName::kUnproven;
    return placed ? store.start.end + static_cast<uint32_t>(i + 1) * stride : uint32_t{0};
  };
  bool added_first = false;
  size_t more = event.block_hashes.size();
  for (size_t i = 0; i < event.block_hashes.size(); ++i) {
    ahead.Step();
    const BlockHash& hash = event.block_hashes[i];
    const ContentKey content = content_.contents[i];
    const router::BlockName name =
        content == kUnnamed ? router::BlockName() : router::BlockName(content, stride, end(i));
    worker.lower_names |= store.tier != Tier::kGpu && name.named();
    const bool added = Hold(worker, store, hash, name, --more);
    if (i == 0) added_first = added;
    // After a pause, the position of the cursor is still valid, but the bits of the holder may have
    // another address.
    if (more > 0 && more % kPauseAfter == 0 && PauseIfAwaited()) store.cursor.ForgetHolder();
    if (worker.digest && (added || store.holding.repeats_count)) {
      worker.digest->Add(store.tier, store.group, hash);
    }
  }
  return added_first;
}

void PrefixIndex::Impl::SampleStore(WorkerState& worker, const CurrentStore& store) {
  const auto residencies = static_cast<double>(worker.total());
  worker.sample.NoteStore({.event = store.event,
                           .start = store.start,
                           .content = content_,
                           .group = store.group,
                           .held = worker.residencies[static_cast<size_t>(Tier::kGpu)],
                           .index_bytes = static_cast<uint64_t>(residencies * bytes_a_residency_),
                           .hash_block_size = worker.registry.hash_block_size(),
                           .lookahead = worker.shown.lookahead.value_or(0)},
                          keys_);
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const BlockRemoved& event,
                                   BatchAhead& ahead, Removals& removals) {
  if (removals.last == nullptr || removals.last->group_idx != event.group_idx ||
      removals.last->medium != event.medium) {
    removals.last = nullptr;
    removals.tier = TierOf(event.medium);
    if (!worker.Accept(worker.registry.Remove(event), removals.tier, event.group_idx)) return;
    removals.last = &event;
    removals.group = GroupRegistry::GroupOf(event.group_idx);
    removals.holder = worker.holders.At(removals.tier, removals.group);
  }
  uint64_t& residencies = worker.residencies[static_cast<size_t>(removals.tier)];
  ResidencyMap::Cursor* cursor = &removals.cursors.At(removals.holder);
  size_t seen = 0;
  for (const BlockHash& hash : event.block_hashes) {
    if (++seen % kPauseAfter == 0 && PauseIfAwaited()) {
      removals.cursors = {};
      cursor = &removals.cursors.At(removals.holder);
    }
    ahead.Step();
    router::BlockName name;
    const router::Removal removal = map_.Remove(hash, removals.holder, *cursor, &name);
    if (removals.tier == Tier::kGpu && worker.hit_reports.has_doubtful()) {
      worker.hit_reports.NoteRemoved(FingerprintOf(hash, removals.group),
                                     removal != router::Removal::kCopiesLeft);
    }
    if (removal == router::Removal::kNotHeld) {
      ++worker.counters.unknown_removes;
      if (removals.tier == Tier::kGpu) worker.hit_reports.NoteUnknownRemove();
      continue;
    }
    ++worker.counters.removed_blocks;
    if (worker.digest) worker.digest->Remove(removals.tier, removals.group, hash);
    if (removal != router::Removal::kLastCopy) continue;
    --residencies;
    if (removals.tier == Tier::kGpu && worker.learns_reuse()) {
      worker.evidence.NoteRemoved(FingerprintOf(hash), removals.group);
      // The next store of an unnamed block that was removed cannot be recognised.
      if (!name.named()) worker.evidence.Close();
    }
    if (name.named()) {
      worker.idle.Put(FingerprintOf(hash), {name.content(), name.proven()});
    } else {
      --worker.unnamed[static_cast<size_t>(removals.tier)];
    }
  }
}

void PrefixIndex::Impl::ApplyEvent(WorkerState& worker, const AllBlocksCleared& event) {
  ++worker.counters.clears;
  ClearTier(worker, TierOf(event.medium));
}

HolderId PrefixIndex::Impl::OpenHolder(WorkerState& worker, Tier tier, uint8_t group) {
  const HolderId open = worker.holders.At(tier, group);
  if (open != router::kNoHolderId) return open;
  const HolderId holder =
      holder_table_.Open({.slot = worker.view->slot, .group = group, .tier = tier});
  worker.holders.Add(tier, group, holder);
  return holder;
}

bool PrefixIndex::Impl::SweepSome(size_t work) {
  if (!holder_table_.sweeping()) {
    if (!holder_table_.BeginSweep()) return false;
    map_.BeginSweep();
  }
  if (map_.Sweep(work)) return true;
  map_.EndSweep();
  holder_table_.EndSweep();
  return holder_table_.any_closed();
}

bool PrefixIndex::Impl::Reclaim() {
  bool any = false;
  for (bool more = true; more;) {
    mutex_.LetOthersRun();
    router::BetweenBatchesLock lock(mutex_);
    any = any || holder_table_.any_closed();
    more = SweepSome(kReclaimWork);
    if (!more) reclaim_.Collect();
  }
  for (size_t shard = 0; shard < router::ResidencyMap::kShards; ++shard) {
    mutex_.LetOthersRun();
    router::BetweenBatchesLock lock(mutex_);
    any = map_.Trim(shard) || any;
  }
  return any;
}

}  // namespace kvcast
