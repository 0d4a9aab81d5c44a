// The parts of PrefixIndex::Impl that name the blocks of a worker by content, and that collect
// evidence of reuse.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "router/index/prefix_index_impl.h"

namespace kvcast {

using router::BlockName;
using router::GivenContent;
using router::HolderId;
using router::ResidencyMap;
using router::WorkerState;

namespace {

// Returns the last argument of BlockName for a content whose prefix has an unknown length.
uint32_t EndOf(const GivenContent& name) { return name.proven ? 0 : BlockName::kUnproven; }

}  // namespace

void PrefixIndex::Impl::Learn(WorkerState& worker, const BlockHash& hash,
                              const router::BlockName& name, bool follows,
                              ResidencyMap::Cursor& cursor) {
  if (!worker.ambiguous.empty() && worker.ambiguous.HasHash(FingerprintOf(hash))) {
    cursor = {};  // the next block does not continue the block at the cursor
    return;
  }
  worker.has_names = worker.has_names || name.named();
  ResidencyMap::Cursor found;
  const auto held = map_.NameOf(hash, worker.holders.all(), found);
  if (!held) {
    worker.idle.Put(FingerprintOf(hash), {name.content(), name.proven()});
  } else if (!held->named()) {
    if (Rename(worker, hash, *held, name, follows, cursor)) ++worker.counters.named_late;
    return;
  } else if (held->content() != name.content()) {
    Contradict(worker, hash, held->content(), name.content());
  }
  map_.Seek(hash, name.content(), cursor);
}

bool PrefixIndex::Impl::NameBlock(WorkerState& worker, const BlockHash& hash, ContentKey content) {
  ResidencyMap::Cursor cursor;
  const auto held = map_.NameOf(hash, worker.holders.all(), cursor);
  if (!held || content == kUnnamed || held->content() == content) return false;
  const auto holder = std::ranges::find_if(
      worker.holders.all(), [&](HolderId of) KV_REQUIRES(mutex_) { return map_.Holds(hash, of); });
  const auto where = holder_table_.Read(*holder);
  const auto spec = where ? worker.registry.SpecOf(where->group) : std::nullopt;
  if (!spec || spec->block_size <= 0) return false;
  const uint64_t named_before = worker.counters.named_late;
  Learn(worker, hash, {content, static_cast<uint32_t>(spec->block_size)}, false, cursor);
  if (worker.counters.named_late == named_before) return false;
  NameParked(worker, hash, {content});
  return true;
}

size_t PrefixIndex::Impl::NameBlocks(WorkerId id, std::span<const BlockHash> hashes,
                                     std::span<const ContentKey> contents) {
  constexpr size_t kAtOnce = 256;
  size_t named = 0;
  for (size_t begin = 0; begin < hashes.size(); begin += kAtOnce) {
    router::BetweenBatchesLock lock(mutex_);
    const auto it = slot_of_.find(id);
    if (it == slot_of_.end()) return named;
    WorkerState& worker = *slots_[it->second];
    const size_t end = std::min(hashes.size(), begin + kAtOnce);
    for (size_t i = begin; i < end; ++i) named += NameBlock(worker, hashes[i], contents[i]);
    Commit(worker);
  }
  return named;
}

// Names the blocks of the stores that waited for the name of this block. Then does the same for
// each block that got a name.
void PrefixIndex::Impl::NameParked(WorkerState& worker, const BlockHash& parent,
                                   const GivenContent& name) {
  std::vector<std::pair<BlockHash, ContentKey>> named = {{parent, name.content}};
  while (!named.empty() && !worker.parked.empty()) {
    const auto [before, before_content] = named.back();
    named.pop_back();
    for (const BlockStored& store : worker.parked.Take(FingerprintOf(before))) {
      if (!worker.NamesByTokens(store)) continue;
      const auto known = [&](size_t i) KV_REQUIRES(mutex_) {
        return KnownContent(worker, store.block_hashes[i]).content;
      };
      reader_.Read(store, {.at_root = false, .parent = before_content, .proven = name.proven},
                   known, nullptr, nullptr, content_);
      ResidencyMap::Cursor cursor;
      map_.Seek(before, before_content, cursor);
      const auto stride = static_cast<uint32_t>(store.block_size);
      for (size_t i = 0; i < store.block_hashes.size(); ++i) {
        if (content_.contents[i] == kUnnamed) continue;
        worker.lower_names |= TierOf(store.medium) != Tier::kGpu;
        const BlockName learned(content_.contents[i], stride, EndOf(name));
        Learn(worker, store.block_hashes[i], learned, content_.dense, cursor);
        named.emplace_back(store.block_hashes[i], content_.contents[i]);
      }
    }
  }
}

// Makes the hash and both its contents ambiguous, because the worker gave the hash two contents.
void PrefixIndex::Impl::Contradict(WorkerState& worker, const BlockHash& hash, ContentKey before,
                                   ContentKey now) {
  Doubt(worker, before);
  Doubt(worker, now);
  worker.ambiguous.AddHash(FingerprintOf(hash));
  ResidencyMap::Cursor cursor;
  if (const auto held = map_.NameOf(hash, worker.holders.all(), cursor))
    Unname(worker, hash, *held);
}

GivenContent PrefixIndex::Impl::KnownContent(WorkerState& worker, const BlockHash& hash) {
  ResidencyMap::Cursor cursor;
  for (WorkerState* of = &worker; of != nullptr; of = of->elder) {
    if (!of->has_names) continue;
    if (const auto name = map_.NameOf(hash, of->holders.all(), cursor)) {
      if (name->named()) return {name->content(), name->proven()};
      if (of->elder == nullptr) return {};
      continue;
    }
    const GivenContent idle = of->idle.Find(FingerprintOf(hash));
    if (idle.content != kUnnamed) return idle;
  }
  return {};
}

// Returns the start of the store's span. Puts the cursor on the block before the span, if that
// block is held.
router::SpanStart PrefixIndex::Impl::StartOf(WorkerState& worker, const BlockStored& event,
                                             ResidencyMap::Cursor& cursor) {
  const auto& parent = event.parent_block_hash;
  if (!parent) return {.at_root = event.token_offset.value_or(0) == 0};
  if (const auto name = map_.NameOf(*parent, worker.holders.all(), cursor)) {
    return {
        .at_root = false, .parent = name->content(), .end = name->end(), .proven = name->proven()};
  }
  const bool zero = worker.config.zero_parent_is_root && *parent == BlockHash::FromUnsigned(0);
  if (zero) return {.at_root = event.token_offset.value_or(0) == 0};
  const GivenContent known = KnownContent(worker, *parent);
  map_.Seek(*parent, known.content, cursor);
  return {.at_root = false, .parent = known.content, .proven = known.proven};
}

void PrefixIndex::Impl::ReadContent(WorkerState& worker, const BlockStored& event, Tier tier,
                                    uint8_t group, const router::SpanStart& start) {
  // The engine hashes the embeddings of a block as a whole, so the names of larger blocks differ
  // from the names of the same tokens in blocks of the hash size.
  const int64_t unit = worker.registry.hash_block_size();
  const bool coarse = unit > 0 && event.block_size != unit && router::HasEmbeddings(event);
  if (coarse || !worker.NamesByTokens(event)) {
    content_ = {.contents = std::vector<ContentKey>(event.block_hashes.size(), kUnnamed),
                .reason = UnnamedReason::kHiddenContent};
    return;
  }
  const std::optional<GroupSpec> spec = worker.registry.SpecOf(group);
  const bool ruled = worker.config.sparse_rule && !worker.rule_refuted && tier == Tier::kGpu;
  const SparseRule* const rule = ruled ? &*worker.config.sparse_rule : nullptr;
  const auto known = [&](size_t i) KV_REQUIRES(mutex_) {
    return KnownContent(worker, event.block_hashes[i]).content;
  };
  reader_.Read(event, start, known, rule, spec ? &*spec : nullptr, content_);
  if (!content_.rule_refuted) return;
  ++worker.counters.rules_refuted;
  worker.rule_refuted = true;
  reader_.Read(event, start, known, nullptr, nullptr, content_);
}

bool PrefixIndex::Impl::Rename(WorkerState& worker, const BlockHash& hash,
                               const router::BlockName& from, const router::BlockName& to,
                               bool follows, ResidencyMap::Cursor& cursor) {
  struct Copies {
    HolderId holder;
    uint32_t count;
  };
  std::vector<Copies> taken;
  for (const HolderId holder : worker.holders.all()) {
    if (const uint32_t copies = map_.TakeCopies(hash, holder)) taken.push_back({holder, copies});
  }
  cursor.ForgetHolder();
  const ResidencyMap::Cursor start = cursor;
  // The result of Add for the first holder applies to all holders.
  bool taken_name = true;
  for (const Copies& copies : taken) {
    cursor = start;
    const auto tier = static_cast<size_t>(holder_table_.Read(copies.holder)->tier);
    const router::Holding holding = {.own = worker.holders.all(),
                                     .holder = copies.holder,
                                     .source = worker.number,
                                     .copies = copies.count,
                                     .unit = worker.hash_unit()};
    if (taken_name &&
        map_.Add(hash, to, holding, 0, follows, cursor) == router::Addition::kOtherHash) {
      Doubt(worker, to.content());
      taken_name = false;
    }
    if (!taken_name) {
      cursor = {};
      map_.Add(hash, {}, holding, 0, false, cursor);
    }
    const bool named = taken_name && to.named();
    if (from.named() && !named) ++worker.unnamed[tier];
    if (!from.named() && named) --worker.unnamed[tier];
  }
  return taken_name;
}

void PrefixIndex::Impl::Doubt(WorkerState& worker, ContentKey content) {
  ++worker.counters.ambiguous;
  worker.ambiguous.AddContent(content);
  worker.ambiguous_changed = true;
}

void PrefixIndex::Impl::NoteLookahead(WorkerState& worker, const BlockStored& event) {
  if (event.block_hashes.empty() || !router::HasUsableTokens(event)) return;
  const int64_t lookahead = router::LookaheadOf(event);
  if (lookahead == worker.shown.lookahead || lookahead < 0 || lookahead > kMaxLookahead) return;
  const bool changes = lookahead != worker.lookahead();
  worker.shown.lookahead = lookahead;
  // The names from other tiers were computed with another lookahead.
  if (changes && worker.lower_names) {
    worker.ambiguous.AddEverything();
    worker.ambiguous_changed = true;
  }
  worker.registry_changes = ~uint64_t{0};
}

bool PrefixIndex::Impl::IsKnown(WorkerState& worker, const BlockHash& hash) {
  ResidencyMap::Cursor cursor;
  return map_.NameOf(hash, worker.holders.all(), cursor).has_value() ||
         worker.idle.Find(FingerprintOf(hash)).content != kUnnamed;
}

bool PrefixIndex::Impl::HitsEndInside(const WorkerState& worker) const {
  return !worker.drop_is_known() && !worker.registry.one_hash_per_block();
}

void PrefixIndex::Impl::NoteNews(WorkerState& worker, const EventBatch& batch) {
  if (!worker.learns_reuse() || worker.drop_is_known()) return;
  worker.evidence.BeginBatch();
  const bool all = HitsEndInside(worker);
  news_.clear();
  size_t seen = 0;
  for (const Event& event : batch.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || TierOf(stored->medium) != Tier::kGpu) continue;
    const std::span<const BlockHash> hashes = stored->block_hashes;
    for (const BlockHash& hash : all ? hashes : hashes.first(std::min<size_t>(1, hashes.size()))) {
      if (!IsKnown(worker, hash)) news_.insert(FingerprintOf(hash));
      if (++seen % kPauseAfter == 0) PauseIfAwaited();
    }
  }
}

bool PrefixIndex::Impl::NoteUnits(WorkerState& worker, const BlockStored& event, uint8_t group) {
  worker.evidence.SetHashBlockSize(worker.registry.hash_block_size());
  const auto hash_block_size = static_cast<size_t>(worker.registry.hash_block_size());
  const std::span<const TokenId> tokens = *event.token_ids;
  bool first_is_new = false;
  // Units with equal tokens count as one unit, even in different prompts or beside different
  // multimodal items.
  for (size_t at = 0; at + hash_block_size <= tokens.size(); at += hash_block_size) {
    const ContentKey content = keys_.Extend(keys_.Root({}), tokens.subspan(at, hash_block_size));
    const bool is_new = worker.evidence.NoteUnit(fingerprint_(content), group);
    if (at == 0) first_is_new = is_new;
  }
  for (const BlockHash& hash : event.block_hashes) {
    const uint64_t block = FingerprintOf(hash);
    if (news_.contains(block)) worker.evidence.NoteNewBlock(block);
  }
  // If the parent was not new, its child may have been stored before the index noted units.
  return first_is_new && event.parent_block_hash &&
         worker.evidence.WasNew(FingerprintOf(*event.parent_block_hash));
}

// True if the group holds the block, and the index remembers no removal of the block by this group.
bool PrefixIndex::Impl::WasHeldAllAlong(WorkerState& worker, const std::optional<BlockHash>& hash,
                                        uint8_t group) {
  if (!hash || !map_.Holds(*hash, worker.holders.At(Tier::kGpu, group))) return false;
  const uint64_t block = FingerprintOf(*hash);
  return worker.idle.Find(block).content == kUnnamed || worker.evidence.WasKept(block, group);
}

void PrefixIndex::Impl::NoteReuse(WorkerState& worker, const BlockStored& event, uint8_t group,
                                  const router::SpanStart& start, bool added) {
  const int64_t hash_block_size = worker.registry.hash_block_size();
  const std::optional<GroupSpec> spec = worker.registry.SpecOf(group);
  if (!spec || hash_block_size <= 0) return;
  const bool inside = HitsEndInside(worker);
  if (!router::HasUsableTokens(event) || (inside && event.tokens_per_position != 1)) {
    if (inside) worker.evidence.Close();
    return;
  }
  const bool drop_is_known = worker.drop_is_known();
  bool is_new = !drop_is_known && added && news_.contains(FingerprintOf(event.block_hashes[0]));
  if (inside) is_new = NoteUnits(worker, event, group) && is_new;
  // A store of a window group may leave out the blocks before the window.
  const bool whole =
      content_.dense &&
      (IsFullKind(spec->kind) || (IsWindowKind(spec->kind) && !worker.registry.has_full_kind()));
  if (!whole || !worker.evidence.open()) return;
  // A request may store a prefix that ends inside a block, and store the whole block later.
  if (!inside && event.block_size != spec->block_size) return;
  const bool placed = start.at_root || start.end > 0;
  for (size_t i = 0; i < event.block_hashes.size() && worker.evidence.open(); ++i) {
    const auto before_it = static_cast<uint32_t>(static_cast<int64_t>(i) * event.block_size);
    const uint32_t parent_end = placed ? start.end + before_it : 0;
    if (i > 0 && !worker.evidence.MayShow(parent_end)) break;
    if (i == 0 && !WasHeldAllAlong(worker, event.parent_block_hash, group)) continue;
    const BlockHash& before = i > 0 ? event.block_hashes[i - 1] : *event.parent_block_hash;
    const bool shows = worker.evidence.NoteChild({.parent = FingerprintOf(before),
                                                  .group = group,
                                                  .block = FingerprintOf(event.block_hashes[i]),
                                                  .parent_end = parent_end,
                                                  .starts = i == 0,
                                                  .is_new = is_new,
                                                  .drop_is_known = drop_is_known});
    if (!shows || content_.contents[0] == kUnnamed || start.end == 0) continue;
    worker.evidence.NoteHit(start.end, static_cast<uint32_t>(hash_block_size));
    worker.shown.shortest_hit = worker.evidence.shortest_hit();
    worker.shown.hit_step = worker.evidence.hit_step();
    worker.registry_changes = ~uint64_t{0};
  }
}

void PrefixIndex::Impl::PassNames(WorkerState& worker, const BlockStored& event,
                                  const router::SpanStart& start) {
  const auto& parent = event.parent_block_hash;
  const bool waits = content_.reason == UnnamedReason::kUnknownParent && parent && !start.at_root &&
                     start.parent == kUnnamed && content_.parent == kUnnamed &&
                     router::HasUsableTokens(event) && !event.block_hashes.empty();
  if (waits) worker.parked.Park(FingerprintOf(*parent), event);
  const GivenContent told_parent = {content_.parent, false};
  const bool proven = content_.proven;
  // NameParked overwrites content_.
  std::vector<ContentKey> contents;
  if (!worker.parked.empty()) contents = content_.contents;
  if (parent && told_parent.content != kUnnamed) {
    ResidencyMap::Cursor before;
    const auto stride = static_cast<uint32_t>(event.block_size);
    Learn(worker, *parent, {told_parent.content, stride, EndOf(told_parent)}, false, before);
    NameParked(worker, *parent, told_parent);
  }
  for (size_t i = 0; i < contents.size(); ++i) {
    if (contents[i] != kUnnamed) NameParked(worker, event.block_hashes[i], {contents[i], proven});
  }
}

void PrefixIndex::Impl::ChooseName(WorkerState& worker, const CurrentStore& store,
                                   const BlockHash& hash, ChosenName& chosen) {
  if (!worker.ambiguous.empty() && worker.ambiguous.HasHash(FingerprintOf(hash))) {
    chosen = {{}, UnnamedReason::kAmbiguous};
    return;
  }
  if (chosen.name.named()) return;
  const GivenContent known = KnownContent(worker, hash);
  const std::optional<GroupSpec> spec = worker.registry.SpecOf(store.group);
  if (known.content != kUnnamed && spec && spec->block_size > 0) {
    chosen.name = {known.content, static_cast<uint32_t>(spec->block_size), EndOf(known)};
  }
}

void PrefixIndex::Impl::Reconcile(WorkerState& worker, const BlockHash& hash,
                                  router::Addition refusal, ChosenName& chosen) {
  ResidencyMap::Cursor found;
  const auto held = map_.NameOf(hash, worker.holders.all(), found);
  if (refusal == router::Addition::kOtherHash) {
    Doubt(worker, chosen.name.content());
  } else if (!held->named()) {
    ResidencyMap::Cursor anywhere;
    if (Rename(worker, hash, *held, chosen.name, false, anywhere)) {
      ++worker.counters.named_late;
      return;
    }
  } else if (!chosen.name.named()) {
    return Unname(worker, hash, *held);
  } else {
    Contradict(worker, hash, held->content(), chosen.name.content());
  }
  chosen = {{}, UnnamedReason::kAmbiguous};
}

bool PrefixIndex::Impl::Hold(WorkerState& worker, CurrentStore& store, const BlockHash& hash,
                             router::BlockName name, size_t more) {
  ChosenName chosen = {name, content_.reason};
  const bool may_know = !name.named() && (worker.has_names || worker.elder != nullptr);
  if (may_know || !worker.ambiguous.empty()) ChooseName(worker, store, hash, chosen);
  // Only a content that the store itself shows continues the content of the block before it.
  const bool follows = content_.dense && name.named();
  router::Addition added = map_.Add(hash, chosen.name, store.holding, more, follows, store.cursor);
  while (added == router::Addition::kOtherName || added == router::Addition::kOtherHash) {
    Reconcile(worker, hash, added, chosen);
    // Rename may have moved the block at the cursor.
    store.cursor = {};
    added = map_.Add(hash, chosen.name, store.holding, more, false, store.cursor);
  }
  const bool named = chosen.name.named();
  if (named) {
    worker.has_names = true;
  } else {
    ++worker.counters.unnamed_blocks[static_cast<size_t>(chosen.reason)];
  }
  const bool first = added == router::Addition::kFirst;
  if (!first && store.tier == Tier::kGpu && worker.learns_reuse()) {
    worker.evidence.NoteCopy(FingerprintOf(hash), store.group);
  }
  if (!first) return false;
  ++worker.residencies[static_cast<size_t>(store.tier)];
  if (!named) ++worker.unnamed[static_cast<size_t>(store.tier)];
  return true;
}

}  // namespace kvcast
