// The part of PrefixIndex::Impl that saves and restores workers.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <utility>

#include "router/index/index_image.h"
#include "router/index/prefix_index_impl.h"

namespace kvcast {

using router::FrozenShard;
using router::HolderId;
using router::ImageHolder;
using router::RunImage;
using router::WorkerState;

namespace {

void SaveTotals(const std::optional<ResidencyDigest>& digest, FieldWriter& to) {
  to.Bool(digest.has_value());
  if (!digest) return;
  const ResidencyTotals totals = digest->Totals();
  to.Int(totals.size());
  for (const GroupTierDigest& entry : totals) {
    to.Int(static_cast<uint64_t>(entry.tier));
    to.Int(entry.group);
    to.Fixed(entry.total.high);
    to.Fixed(entry.total.low);
    to.Int(entry.total.copies);
  }
}

std::optional<ResidencyTotals> TotalsFrom(FieldReader& from) {
  if (!from.Bool()) return std::nullopt;
  ResidencyTotals totals;
  constexpr size_t kLeastBytes = 19;  // of an entry that SaveTotals wrote
  for (size_t n = from.Count(kLeastBytes); n > 0 && from.ok(); --n) {
    GroupTierDigest entry;
    entry.tier = static_cast<Tier>(from.Int(kTiers - 1));
    entry.group = static_cast<uint8_t>(from.Int(kMaxGroups - 1));
    entry.total.high = from.Fixed();
    entry.total.low = from.Fixed();
    entry.total.copies = from.Int();
    totals.push_back(entry);
  }
  return totals;
}

void SaveShown(const router::WorkerRules::Shown& shown, FieldWriter& to) {
  to.Int(shown.lookahead ? 1 + static_cast<uint64_t>(*shown.lookahead) : 0);
  to.Int(static_cast<uint64_t>(shown.shortest_hit));
  to.Int(static_cast<uint64_t>(shown.hit_step));
  to.Int(shown.rules ? 1 + static_cast<uint64_t>(*shown.rules) : 0);
  to.Int(shown.refused_tiers);
}

void RestoreShown(FieldReader& from, router::WorkerRules::Shown& shown) {
  const uint64_t lookahead = from.Int(1 + static_cast<uint64_t>(kMaxLookahead));
  if (lookahead > 0) shown.lookahead = static_cast<int64_t>(lookahead - 1);
  shown.shortest_hit = static_cast<int64_t>(from.Int(~uint32_t{0}));
  shown.hit_step = static_cast<int64_t>(from.Int(~uint32_t{0}));
  if (shown.hit_step == 0 || shown.shortest_hit % shown.hit_step != 0) {
    shown.shortest_hit = shown.hit_step = 0;
  }
  const uint64_t rules = from.Int(1 + static_cast<uint64_t>(EngineRules::kV033));
  if (rules > 0) shown.rules = static_cast<EngineRules>(rules - 1);
  shown.refused_tiers = static_cast<uint8_t>(from.Int((1 << kTiers) - 1));
}

std::vector<uint8_t> SaveLearned(const WorkerState& worker) {
  FieldWriter to;
  SaveTotals(worker.digest, to);
  worker.registry.Save(to);
  worker.hit_reports.Save(to);
  worker.idle.Save(to);
  worker.ambiguous.Save(to);
  worker.evidence.Save(to);
  SaveShown(worker.shown, to);
  to.Bool(worker.rule_refuted);
  to.Bool(worker.has_names);
  to.Bool(worker.lower_names);
  to.Int(worker.announced);
  return to.Take();
}

}  // namespace

void PrefixIndex::Impl::Freeze(std::span<const WorkerId> workers,
                               const std::function<void(const FrozenShard&)>& use) const {
  router::BetweenBatchesLock lock(mutex_);
  FrozenShard frozen(map_);
  frozen.numbers_.assign(holder_table_.size(), FrozenShard::kNotSaved);
  frozen.learned_.resize(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    const auto it = slot_of_.find(workers[i]);
    if (it == slot_of_.end()) continue;
    const WorkerState& worker = *slots_[it->second];
    frozen.learned_[i] = SaveLearned(worker);
    for (const HolderId id : worker.holders.all()) {
      const auto holder = holder_table_.Read(id);
      if (!holder) continue;
      const ImageHolder saved{static_cast<uint32_t>(i), holder->tier, holder->group};
      frozen.numbers_[id] = saved.Packed();
    }
  }
  use(frozen);
}

Status PrefixIndex::Impl::RestoreLearned(WorkerId id, FieldReader& from) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return {StatusCode::kNotFound, "the worker is not registered"};
  WorkerState& worker = *slots_[it->second];
  worker.registry.Restore(from);
  worker.hit_reports.Restore(from);
  worker.idle.Restore(from);
  worker.ambiguous.Restore(from);
  worker.ambiguous_changed = true;
  worker.evidence.Restore(from);
  RestoreShown(from, worker.shown);
  worker.rule_refuted = from.Bool();
  worker.has_names = from.Bool();
  worker.lower_names = from.Bool();
  worker.announced = from.Int();
  worker.registry_changes = ~uint64_t{0};
  Commit(worker);
  if (from.AtEnd()) return Status();
  return {StatusCode::kMalformed, "the saved properties of the worker are damaged"};
}

// Makes room for the part of the image that this shard gets.
void PrefixIndex::Impl::Reserve(const router::ImageSize& size, size_t shards) {
  router::BetweenBatchesLock lock(mutex_);
  for (size_t form = 0; form < router::ImageSize::kForms; ++form) {
    const auto [blocks, named_runs] = size.forms[form];
    if (blocks == 0) continue;
    map_.Reserve(static_cast<BlockHash::Form>(form), blocks / shards, named_runs / shards);
  }
}

bool PrefixIndex::Impl::RestoreRuns(WorkerId id, uint32_t number, std::span<const RunImage> runs) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return false;
  WorkerState& worker = *slots_[it->second];
  bool restored = true;
  for (const RunImage& run : runs) restored = restored && RestoreRun(worker, number, run);
  Commit(worker);
  return restored;
}

bool PrefixIndex::Impl::RestoreRun(WorkerState& worker, uint32_t number, const RunImage& run) {
  for (size_t i = 0; i < run.holders.size(); ++i) {
    if (run.holders[i].holder.worker == number && !RestoreHolder(worker, run, i)) return false;
  }
  return true;
}

bool PrefixIndex::Impl::RestoreHolder(WorkerState& worker, const RunImage& run, size_t index) {
  const auto& [holder, bits] = run.holders[index];
  router::Holding holding = {.holder = OpenHolder(worker, holder.tier, holder.group),
                             .source = worker.number,
                             .unit = worker.hash_unit()};
  holding.own = worker.holders.all();
  router::ResidencyMap::Cursor cursor;
  size_t done = 0;
  if (run.copies.empty()) {
    done = RestoreNew(worker, run, static_cast<size_t>(std::countr_one(bits)), holding, cursor);
  }
  const uint64_t not_restored = done == RunImage::kMaxBlocks ? 0 : bits >> done << done;
  for (uint64_t left = not_restored; left != 0; left &= left - 1) {
    const auto block = static_cast<size_t>(std::countr_zero(left));
    holding.copies = 1;
    for (const RunImage::Copies& copies : run.copies) {
      if (copies.holder == index && copies.block == block) holding.copies = copies.copies;
    }
    const bool gap = block > 0 && (bits >> (block - 1) & 1) == 0;
    if (gap && run.stride > 0) map_.Seek(run.hash(block - 1), run.contents[block - 1], cursor);
    if (!RestoreBlock(worker, run, block, holding, cursor)) return false;
    for (uint32_t copy = 0; worker.digest && copy < holding.copies; ++copy) {
      worker.digest->Add(holder.tier, holder.group, run.hash(block));
    }
  }
  return true;
}

size_t PrefixIndex::Impl::RestoreNew(WorkerState& worker, const RunImage& run, size_t blocks,
                                     const router::Holding& holding,
                                     router::ResidencyMap::Cursor& cursor) {
  const auto contents = std::span(run.contents).first(run.contents.empty() ? 0 : blocks);
  const size_t added =
      run.form == BlockHash::Form::kBytes
          ? map_.AddNew({std::span(run.byte_strings).first(blocks), contents, run.stride, run.end},
                        holding, cursor)
          : map_.AddNew(run.form,
                        {std::span(run.integers).first(blocks), contents, run.stride, run.end},
                        holding, cursor);
  const auto holder = holder_table_.Read(holding.holder);
  const auto tier = static_cast<size_t>(holder->tier);
  worker.residencies[tier] += added;
  if (run.stride == 0) worker.unnamed[tier] += added;
  for (size_t i = 0; worker.digest && i < added; ++i) {
    worker.digest->Add(holder->tier, holder->group, run.hash(i));
  }
  return added;
}

bool PrefixIndex::Impl::RestoreBlock(WorkerState& worker, const RunImage& run, size_t block,
                                     router::Holding& holding,
                                     router::ResidencyMap::Cursor& cursor) {
  const BlockHash hash = run.hash(block);
  const size_t more = run.blocks - block - 1;
  router::BlockName name;
  if (run.stride > 0 && run.contents[block] != kUnnamed) {
    const auto position = static_cast<uint32_t>(block);
    name = {run.contents[block], run.stride, run.end == 0 ? 0 : run.end + position * run.stride};
  }
  router::Addition added =
      map_.Add(hash, name, holding, more, /*follows=*/name.named() && block > 0, cursor);
  if (added == router::Addition::kOtherHash) {
    // The worker holds two hashes of this content. The saved index did not detect this, because
    // another worker had begun the run of one of the hashes (see RunStore::OwnsRival).
    Doubt(worker, name.content());
    cursor = {};
    name = {};
    added = map_.Add(hash, name, holding, 0, false, cursor);
  }
  if (added != router::Addition::kFirst) return false;
  const auto tier = static_cast<size_t>(holder_table_.Read(holding.holder)->tier);
  ++worker.residencies[tier];
  if (!name.named()) ++worker.unnamed[tier];
  return true;
}

namespace router {

template <typename Visit, typename Part>
void FrozenShard::ForEachHolder(const Part& part, Visit&& visit) const {
  const HolderSet& set = part.holders;
  for (uint32_t i = 0; i < set.size(); ++i) {
    const HolderId id = set.id(i);
    const uint64_t bits = set.bits(i);
    if (bits != 0 && id < numbers_.size() && numbers_[id] != kNotSaved) visit(id, bits);
  }
}

template <typename Store, typename Part>
void FrozenShard::WriteRun(BlockHash::Form form, const Store& store, const Part& part,
                           ImageSink& sink) const {
  uint64_t holders = 0;
  uint64_t copies = 0;
  const auto for_each_copies = [&](HolderId id, uint64_t bits, auto&& visit) {
    if (!store.HasCopies(id)) return;
    for (; bits != 0; bits &= bits - 1) {
      const auto block = static_cast<uint32_t>(std::countr_zero(bits));
      const uint32_t count = store.CopiesOf(part.keys[block], id);
      if (count > 1) visit(block, count);
    }
  };
  ForEachHolder(part, [&](HolderId id, uint64_t bits) {
    ++holders;
    for_each_copies(id, bits, [&](uint32_t, uint32_t) { ++copies; });
  });
  if (holders == 0) return;
  for (const uint64_t field : {static_cast<uint64_t>(form), uint64_t{part.slots},
                               uint64_t{part.stride}, uint64_t{part.end}, holders, copies}) {
    sink.PutVarint(field);
  }
  if constexpr (std::is_same_v<decltype(part.keys), const uint64_t*>) {
    sink.Put(part.keys, part.slots * sizeof(uint64_t));
  } else {
    for (uint32_t i = 0; i < part.slots; ++i) {
      const std::span<const uint8_t> bytes = part.keys[i].bytes();
      sink.PutVarint(bytes.size());
      sink.Put(bytes.data(), bytes.size());
    }
  }
  if (part.stride > 0) sink.Put(part.contents, part.slots * sizeof(ContentKey));
  const uint64_t all = BitRange(0, part.slots);
  ForEachHolder(part, [&](HolderId id, uint64_t bits) {
    sink.PutVarint(numbers_[id] << 1 | uint64_t{bits == all});
    if (bits != all) sink.Put(&bits, sizeof(bits));
  });
  uint64_t index = 0;  // of the holder among the saved holders
  ForEachHolder(part, [&](HolderId id, uint64_t bits) {
    for_each_copies(id, bits, [&](uint32_t block, uint32_t count) {
      for (const uint64_t field : {index, uint64_t{block}, uint64_t{count}}) sink.PutVarint(field);
    });
    ++index;
  });
}

void FrozenShard::WriteRuns(ImageSink& sink) const {
  map_.ForEachRun([&](BlockHash::Form form, const auto& store, const auto& part) {
    WriteRun(form, store, part, sink);
  });
}

void IndexImage::Freeze(const PrefixIndex& index, size_t shard, std::span<const WorkerId> workers,
                        const std::function<void(const FrozenShard&)>& use) {
  index.shards_[shard]->Freeze(workers, use);
}

void IndexImage::Reserve(PrefixIndex& index, const ImageSize& size) {
  for (const auto& shard : index.shards_) shard->Reserve(size, index.shards_.size());
}

Status IndexImage::Restore(PrefixIndex& index, WorkerId worker, uint32_t number,
                           std::span<const uint8_t> learned,
                           const std::function<bool(RunImage&)>& next_run) {
  constexpr size_t kAtOnce = 64;  // runs for each time that the lock is taken
  PrefixIndex::Impl& shard = index.Of(worker);
  FieldReader from(learned);
  const std::optional<ResidencyTotals> totals = TotalsFrom(from);
  Status status = shard.RestoreLearned(worker, from);
  if (status.code() == StatusCode::kNotFound) return status;
  std::array<RunImage, kAtOnce> runs;
  for (bool more = true; more && status.ok();) {
    size_t read = 0;
    while (read < kAtOnce && (more = next_run(runs[read]))) ++read;
    if (!shard.RestoreRuns(worker, number, std::span(runs).first(read))) {
      status = {StatusCode::kMalformed, "the saved blocks of the worker are damaged"};
    }
  }
  if (status.ok() && totals && *totals != index.Digests(worker)) {
    status = {StatusCode::kMalformed,
              "the restored blocks of the worker do not have the saved digests"};
  }
  if (!status.ok()) index.RestartWorker(worker);
  return status;
}

}  // namespace router
}  // namespace kvcast
