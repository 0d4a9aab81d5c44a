// PrefixIndex::Impl: the data and the steps of the index's writers. Writers hold a mutex; readers
// take no lock. README.md in this folder has the invariants.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "kvcast/core/tier.h"
#include "kvcast/router/prefix_index.h"
#include "router/index/batch_ahead.h"
#include "router/index/hit_report.h"
#include "router/index/match_query.h"
#include "router/index/place_table.h"
#include "router/index/removal_cursors.h"
#include "router/index/residency_map.h"
#include "router/names/ambiguous_names.h"
#include "router/names/idle_names.h"
#include "router/names/pending_stores.h"
#include "router/names/store_content.h"
#include "router/rules/group_registry.h"
#include "router/rules/reuse_evidence.h"
#include "router/rules/rule_sets.h"
#include "router/rules/worker_rules.h"
#include "router/sample/prompt_sample.h"
#include "src/base/check.h"
#include "src/base/epoch.h"
#include "src/base/slab_arena.h"
#include "src/base/waiter_counting_mutex.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

using Verdict = GroupRegistry::Verdict;

// A worker, or a hidden generation of a worker, as writers see it.
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
  GroupRegistry registry;
  uint64_t catalogue_changes = 0;  // registry.changes() of the view's rules
  IndexCounters counters;
  std::array<uint64_t, kTiers> residencies{};
  router::HitReportState hit_reports;
  std::optional<ResidencyDigest> digest;
  OwnPlaces places;
  uint32_t number = 0;  // unique among all states, past ones included
  // Counters and stores for the naming of blocks by content.
  std::array<uint64_t, kTiers> unnamed{};  // entries, by tier
  bool has_names = false;                  // a block was named since the last ForgetNames
  IdleNames idle;
  router::PendingStores parked;
  AmbiguousNames ambiguous;
  bool ambiguous_changed = false;
  bool rule_refuted = false;    // a store contradicted the sparse rule
  bool has_gpu_copies = false;  // a group stored a block again
  bool lower_names = false;     // the tokens of a store of a lower tier named a block
  WorkerRules::Shown shown;
  router::ReuseEvidence evidence;
  PromptSample sample;
  uint64_t announced = 0;  // groups that a store has named, by bit
  // Of a hidden generation: the visible generation, whose names it uses. Else nullptr.
  WorkerState* elder = nullptr;

  uint64_t total() const {
    return std::accumulate(residencies.begin(), residencies.end(), uint64_t{0});
  }
  uint64_t total_unnamed() const {
    return std::accumulate(unnamed.begin(), unnamed.end(), uint64_t{0});
  }
  // True if stores can still show how the engine reuses blocks. Registered groups are complete and
  // fully described, so there is nothing to learn.
  bool learns_reuse() const { return config.groups.empty() && evidence.open(); }
  // True if it is known which block, or that no block, is dropped for a draft head. If a hash
  // covers tokens behind its block, no block needs to be dropped.
  bool drop_is_known() const {
    return config.eagle.has_value() || shown.lookahead > 0 || shown.shortest_hit > 0;
  }
  // Tokens behind a block that the hash of the block covers.
  int64_t lookahead() const {
    const WorkerRules::Shown& of = elder == nullptr ? shown : elder->shown;
    return std::max(config.hash_lookahead_tokens, of.lookahead);
  }
  // True if the tokens of a store show which content its hashes name. Offloading connectors send
  // stores without the lookahead tokens.
  bool NamesByTokens(const BlockStored& event) const {
    if (TierOf(event.medium) == Tier::kGpu) return true;
    return !event.token_ids || event.token_ids->empty() ||
           router::LookaheadOf(event) == lookahead();
  }
  // Counts the verdict on an event. True: the event changes residency.
  bool Accept(Verdict verdict) {
    if (verdict == Verdict::kBad) ++counters.bad_events;
    if (verdict == Verdict::kUnknownKind) ++counters.unknown_kinds;
    if (verdict == Verdict::kIndexAssumed) ++counters.assumed_kinds;
    return verdict == Verdict::kIndex || verdict == Verdict::kIndexAssumed;
  }
};

// The removals of a batch since its last event of another kind, and the place of the last removal.
struct Removals {
  RemovalCursors cursors;
  const BlockRemoved* last = nullptr;
  Tier tier = Tier::kGpu;
  uint8_t group = 0;
  PlaceId place = router::kNoPlace;
};

// The registered workers, as readers see them. Immutable (I10): a change of the workers makes a new
// roster.
struct Roster {
  using ById = std::vector<std::pair<WorkerId, const WorkerView*>>;

  std::vector<const WorkerView*> by_order;  // in order of registration
  ById by_id;                               // sorted

  const WorkerView* Find(WorkerId id) const {
    const auto it = PositionOf(id);
    return it != by_id.end() && it->first == id ? it->second : nullptr;
  }
  ById::const_iterator PositionOf(WorkerId id) const {
    return std::lower_bound(by_id.begin(), by_id.end(), id,
                            [](const auto& entry, WorkerId value) { return entry.first < value; });
  }
  // Returns a copy that has `view` for this worker. nullptr: a copy without the worker.
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

}  // namespace kvcast::router

namespace kvcast {
// Threads: writers hold `mutex_`; readers take no lock. A reader finds the workers in the roster
// and their blocks in the map. The worker's version shows whether a batch was shown, or a named
// block of the worker was moved, during the reading. If so, the reader reads that worker again.
class PrefixIndex::Impl {
 public:
  explicit Impl(const ContentKeys& keys) : keys_(keys), reader_(keys) {}
  ~Impl();
  Status AddWorker(WorkerId id, const WorkerConfig& config);
  void RemoveWorker(WorkerId id);
  void ClearWorker(WorkerId id, bool forget_groups);
  Status LearnUnit(WorkerId id, int64_t unit);
  void LearnRules(WorkerId id, EngineRules rules);
  void NoteMissedBlocks(WorkerId id);
  size_t NameBlocks(WorkerId id, std::span<const BlockHash> hashes,
                    std::span<const ContentKey> contents);
  ApplyResult Apply(WorkerId id, const EventBatch& batch);
  static IndexCounters CountersOf(const router::WorkerState& state);
  uint64_t writer_locks() const { return mutex_.taken(); }
  void BeginHidden(WorkerId id);
  void ApplyHidden(WorkerId id, const EventBatch& batch);
  void SwapHidden(WorkerId id);
  void DropHidden(WorkerId id);
  bool Reclaim();
  ResidencyTotals HiddenDigests(WorkerId id) const;
  void ForEachResidency(WorkerId id, const std::function<void(Tier, uint8_t group, const BlockHash&,
                                                              uint32_t copies)>& visit) const;
  // Reads the blocks of the workers. Returns the result of `answer(query)`.
  template <typename Answer>
  auto Query(const PromptBlocks& prompt, const router::QueryShape& shape,
             router::MatchQuery::Detail detail, std::span<const WorkerId> ids,
             Answer&& answer) const;
  const ContentKeys& keys() const { return keys_; }
  ContentKey ContentOf(WorkerId id, const BlockHash& hash);
  ReuseDiagnosis Diagnose(WorkerId id) const;
  PromptShape ShapeOf(WorkerId id) const;
  // Returns the result of `read` for the worker; `absent` if the worker is not registered.
  template <typename T, typename Read>
  T ReadWorker(WorkerId id, const T& absent, Read read) const {
    WaiterCountingLock lock(mutex_);
    const auto it = slot_of_.find(id);
    return it == slot_of_.end() ? absent : read(*slots_[it->second]);
  }

 private:
  // Ends a change of the worker: shows it to queries. A query sees the whole change or nothing of
  // it (I1).
  void Commit(router::WorkerState& worker) KV_REQUIRES(mutex_);
  router::WorkerSlot TakeSlot() KV_REQUIRES(mutex_);
  router::WorkerState& Enter(WorkerId id, const WorkerConfig& config,
                             router::GroupRegistry registry) KV_REQUIRES(mutex_);
  void Leave(router::WorkerSlot slot) KV_REQUIRES(mutex_);
  // Shows readers the worker's view. nullptr: the worker is removed.
  void Show(WorkerId id, const router::WorkerView* view) KV_REQUIRES(mutex_);
  void ForgetHidden(WorkerId id) KV_REQUIRES(mutex_);
  std::vector<size_t> ApplyTo(router::WorkerState& worker, const EventBatch& batch)
      KV_REQUIRES(mutex_);
  void ClearTier(router::WorkerState& worker, Tier tier) KV_REQUIRES(mutex_);
  bool SweepSome(size_t runs) KV_REQUIRES(mutex_);
  router::PlaceId OpenPlace(router::WorkerState& worker, Tier tier, uint8_t group)
      KV_REQUIRES(mutex_);
  void ForgetNames(router::WorkerState& worker) KV_REQUIRES(mutex_);
  // Returns the content that the source gave the hash before; kUnnamed: none.
  ContentKey KnownContent(router::WorkerState& worker, const BlockHash& hash) KV_REQUIRES(mutex_);
  router::SpanStart StartOf(router::WorkerState& worker, const BlockStored& event,
                            router::ResidencyMap::Cursor& cursor) KV_REQUIRES(mutex_);
  void ReadContent(router::WorkerState& worker, const BlockStored& event, Tier tier, uint8_t group,
                   const router::SpanStart& start) KV_REQUIRES(mutex_);
  // The store that is applied. content_ has the content of its blocks.
  struct CurrentStore {
    const BlockStored& event;
    Tier tier;
    uint8_t group;
    router::SpanStart start;
    router::Holding holding;              // the place of its blocks
    router::ResidencyMap::Cursor cursor;  // on its last block so far
  };
  // Adds the blocks of the store. True: its place did not hold the first block before.
  bool HoldAll(router::WorkerState& worker, CurrentStore& store, router::BatchAhead& ahead)
      KV_REQUIRES(mutex_);
  // Adds one block. `more`: number of blocks behind it in the store. True: the place did not hold
  // the block before.
  bool Hold(router::WorkerState& worker, CurrentStore& store, const BlockHash& hash,
            router::BlockName name, size_t more) KV_REQUIRES(mutex_);
  // The name of a block that is added. If it is unnamed, the reason.
  struct ChosenName {
    router::BlockName name;
    UnnamedReason reason;
  };
  // Takes the name of an ambiguous hash away, and gives an unnamed block the name that the source
  // gave the hash before.
  void ChooseName(router::WorkerState& worker, const CurrentStore& store, const BlockHash& hash,
                  ChosenName& chosen) KV_REQUIRES(mutex_);
  // The map refused to add a block, because the worker holds the hash under another name, or
  // another hash of the content. Changes the names so that the map can add the block under
  // `chosen`.
  void Reconcile(router::WorkerState& worker, const BlockHash& hash, router::Addition refusal,
                 ChosenName& chosen) KV_REQUIRES(mutex_);
  void SampleStore(router::WorkerState& worker, const CurrentStore& store) KV_REQUIRES(mutex_);
  // Parks the store if its names wait for the name of its parent. Names the parent, if the store
  // shows its content, and the parked stores that follow the parent or a block of the store.
  void PassNames(router::WorkerState& worker, const BlockStored& event,
                 const router::SpanStart& start) KV_REQUIRES(mutex_);
  void NoteLookahead(router::WorkerState& worker, const BlockStored& event) KV_REQUIRES(mutex_);
  // True if the worker holds the hash in any place, or removed it a short time ago.
  bool IsKnown(router::WorkerState& worker, const BlockHash& hash) KV_REQUIRES(mutex_);
  // True if hits may end inside a block, or at the ends of blocks of other groups, after a block
  // was dropped for a draft head.
  bool HitsEndInside(const router::WorkerState& worker) const KV_REQUIRES(mutex_);
  // Notes which blocks of the batch are new to the worker. Call it before the batch is applied.
  void NoteNews(router::WorkerState& worker, const EventBatch& batch) KV_REQUIRES(mutex_);
  bool WasHeldAllAlong(router::WorkerState& worker, const std::optional<BlockHash>& hash,
                       uint8_t group) KV_REQUIRES(mutex_);
  // Notes the reuse that an applied store shows. `added`: its group did not hold the first block
  // before.
  void NoteReuse(router::WorkerState& worker, const BlockStored& event, uint8_t group,
                 const router::SpanStart& start, bool added) KV_REQUIRES(mutex_);
  // For workers whose hits may end inside blocks: notes the tokens of all units of the store. True:
  // the tokens of the first unit are new.
  bool NoteUnits(router::WorkerState& worker, const BlockStored& event, uint8_t group)
      KV_REQUIRES(mutex_);
  // Moves all copies of the worker from one name to another. False: the worker holds another hash
  // of the new content, and the copies are unnamed now.
  bool Rename(router::WorkerState& worker, const BlockHash& hash, const router::BlockName& from,
              const router::BlockName& to, bool follows, router::ResidencyMap::Cursor& cursor)
      KV_REQUIRES(mutex_);
  void Unname(router::WorkerState& worker, const BlockHash& hash, const router::BlockName& from)
      KV_REQUIRES(mutex_) {
    router::ResidencyMap::Cursor cursor;
    Rename(worker, hash, from, {}, false, cursor);
  }
  // Like NameBlocks, for one block. True: it was named.
  bool NameBlock(router::WorkerState& worker, const BlockHash& hash, ContentKey content)
      KV_REQUIRES(mutex_);
  // Takes the name of a block from the store of another block.
  void Learn(router::WorkerState& worker, const BlockHash& hash, const router::BlockName& name,
             bool follows, router::ResidencyMap::Cursor& cursor) KV_REQUIRES(mutex_);
  void NameParked(router::WorkerState& worker, const BlockHash& parent, ContentKey content)
      KV_REQUIRES(mutex_);
  void Contradict(router::WorkerState& worker, const BlockHash& hash, ContentKey before,
                  ContentKey now) KV_REQUIRES(mutex_);
  // Marks the content as ambiguous: the worker's statements about it contradict each other.
  void Doubt(router::WorkerState& worker, ContentKey content) KV_REQUIRES(mutex_);
  // Measures the memory that residencies take.
  void WeighResidencies() KV_REQUIRES(mutex_);
  // Returns the number of leading events that only repeat residency that the index has. They must
  // be left out.
  size_t SkipHitReport(router::WorkerState& worker, std::span<const Event> events)
      KV_REQUIRES(mutex_);
  void ApplyEvent(router::WorkerState& worker, const BlockStored& event, router::BatchAhead& ahead)
      KV_REQUIRES(mutex_);
  void ApplyEvent(router::WorkerState& worker, const BlockRemoved& event, router::BatchAhead& ahead,
                  router::Removals& removals) KV_REQUIRES(mutex_);
  void ApplyEvent(router::WorkerState& worker, const AllBlocksCleared& event) KV_REQUIRES(mutex_);
  // Asks `query` for the workers `ids`; if there are none, for all workers.
  static void AskAll(const router::Roster& roster, std::span<const WorkerId> ids,
                     router::MatchQuery& query);

  uint64_t FingerprintOf(const BlockHash& hash) const { return fingerprint_(hash); }
  // The fingerprint of the hash in a group.
  uint64_t FingerprintOf(const BlockHash& hash, uint8_t group) const {
    return fingerprint_(hash) ^ uint64_t { group } * 0x9E3779B97F4A7C15;
  }

  const ContentKeys& keys_;
  const router::SeededHash fingerprint_{router::ProcessSeed() ^ 0x51ED270B7F3C9A55};
  mutable WaiterCountingMutex mutex_;
  router::StoreReader reader_ KV_GUARDED_BY(mutex_);
  router::StoreContent content_ KV_GUARDED_BY(mutex_);  // of the current store
  // Fingerprints of the current batch's blocks that are new to the worker.
  absl::flat_hash_set<uint64_t> news_ KV_GUARDED_BY(mutex_);
  SlabArena arena_;
  mutable EpochDomain epochs_;
  router::PlaceTable places_{epochs_};
  router::ResidencyMap map_{router::ProcessSeed(), arena_, epochs_, places_};
  std::unordered_map<WorkerId, router::WorkerSlot> slot_of_ KV_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<router::WorkerState>> slots_ KV_GUARDED_BY(mutex_);
  std::vector<router::WorkerSlot> free_slots_ KV_GUARDED_BY(mutex_);
  std::unordered_map<WorkerId, router::WorkerSlot> hidden_of_ KV_GUARDED_BY(mutex_);
  router::RuleSets rule_sets_ KV_GUARDED_BY(mutex_){epochs_};
  std::vector<router::PlaceId> closing_ KV_GUARDED_BY(mutex_);  // closed by the current change
  uint32_t states_ KV_GUARDED_BY(mutex_) = 0;                   // states made so far
  // Of all workers: the bytes of the index for a block in a group and tier of a worker.
  double bytes_a_residency_ KV_GUARDED_BY(mutex_) = 0;
  size_t weigh_in_ KV_GUARDED_BY(mutex_) = 0;  // batches until the next measurement
  std::atomic<const router::Roster*> roster_{new router::Roster};  // I10
};

}  // namespace kvcast
