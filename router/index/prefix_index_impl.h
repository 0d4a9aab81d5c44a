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
#include "router/index/batch_mutex.h"
#include "router/index/hit_report.h"
#include "router/index/holder_table.h"
#include "router/index/index_image.h"
#include "router/index/match_query.h"
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
#include "src/base/reclaim_domain.h"
#include "src/base/slab_arena.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

using Verdict = GroupRegistry::Verdict;

// The data that writers have of a worker, or of a hidden generation of a worker.
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
  // registry.changes() when view->rules was made. ~0: the next Commit makes the rules again.
  uint64_t registry_changes = 0;
  IndexCounters counters;
  std::array<uint64_t, kTiers> residencies{};
  router::HitReportState hit_reports;
  std::optional<ResidencyDigest> digest;
  OwnHolders holders;
  uint32_t number = 0;  // unique among all current and past states
  // Counters and stores for the naming of blocks by content.
  std::array<uint64_t, kTiers> unnamed{};  // number of unnamed entries, by tier
  bool has_names = false;                  // a block was named since the last ForgetNames
  IdleNames idle;
  router::PendingStores parked;
  AmbiguousNames ambiguous;
  bool ambiguous_changed = false;
  bool rule_refuted = false;  // a store contradicted the sparse rule
  bool lower_names = false;   // the tokens of a store of a lower tier named a block
  WorkerRules::Shown shown;
  router::ReuseEvidence evidence;
  PromptSample sample;
  std::vector<uint64_t> rejects;  // see PrefixIndex::GroupRejects
  uint64_t announced = 0;         // bit i: a store has named group i
  // For a hidden generation: the visible generation of the worker, whose names the hidden
  // generation uses. For a visible generation: nullptr.
  WorkerState* elder = nullptr;

  uint64_t total() const {
    return std::accumulate(residencies.begin(), residencies.end(), uint64_t{0});
  }
  uint64_t total_unnamed() const {
    return std::accumulate(unnamed.begin(), unnamed.end(), uint64_t{0});
  }
  uint32_t hash_unit() const { return static_cast<uint32_t>(registry.hash_block_size()); }
  // True if stores can still show how the engine reuses blocks. Registered groups are complete, so
  // the index learns nothing about them.
  bool learns_reuse() const { return config.groups.empty() && evidence.open(); }
  // True if it is known whether the engine drops a block for a draft head. If hashes cover
  // lookahead tokens, the engine drops no block.
  bool drop_is_known() const {
    return config.eagle.has_value() || shown.lookahead.value_or(0) > 0 || shown.shortest_hit > 0;
  }
  // Number of tokens behind a block that the hash of the block also covers.
  int64_t lookahead() const {
    const WorkerRules::Shown& of = elder == nullptr ? shown : elder->shown;
    return of.lookahead.value_or(config.hash_lookahead_tokens);
  }
  // False: the tokens of the store do not determine the content of its hashes, because their
  // lookahead differs from lookahead(). Offloading connectors send stores without lookahead tokens.
  bool NamesByTokens(const BlockStored& event) const {
    if (TierOf(event.medium) == Tier::kGpu) return true;
    return !event.token_ids || event.token_ids->empty() ||
           router::LookaheadOf(event) == lookahead();
  }
  void Reject(int64_t group) {
    const bool known = group >= 0 && group < kMaxGroups;
    const auto index = static_cast<size_t>(known ? group : kMaxGroups);
    if (rejects.size() <= index) rejects.resize(index + 1);
    ++rejects[index];
  }
  void NoteRefused(Tier tier, bool refused) {
    const auto bit = static_cast<uint8_t>(1u << static_cast<uint8_t>(tier));
    if (((shown.refused_tiers & bit) != 0) == refused) return;
    shown.refused_tiers ^= bit;
    registry_changes = ~uint64_t{0};
  }
  // Counts the verdict on an event of the tier. True: the event changes residency.
  bool Accept(Verdict verdict, Tier tier, const std::optional<int64_t>& group_idx) {
    if (verdict == Verdict::kBad) {
      ++counters.bad_events;
      NoteRefused(tier, true);
    }
    if (verdict == Verdict::kUnknownKind) ++counters.unknown_kinds;
    if (verdict == Verdict::kBad || verdict == Verdict::kUnknownKind) Reject(group_idx.value_or(0));
    if (verdict == Verdict::kIndexAssumed) ++counters.assumed_kinds;
    return verdict == Verdict::kIndex || verdict == Verdict::kIndexAssumed;
  }
};

// The state of consecutive removals in a batch: their cursors, and the holder of the most recent
// removal. Every event of another kind resets this state. `last`: the most recent removal; nullptr:
// the next removal must find its holder.
struct Removals {
  RemovalCursors cursors;
  const BlockRemoved* last = nullptr;
  Tier tier = Tier::kGpu;
  uint8_t group = 0;
  HolderId holder = router::kNoHolderId;
};

// The registered workers, as readers see them. Immutable (I10): each change of the workers makes a
// new roster.
struct Roster {
  using ById = std::vector<std::pair<WorkerId, const WorkerView*>>;

  uint64_t number = NewNumber();            // unique in the process
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
  // Returns a number that is not 0 and that was not returned before.
  static uint64_t NewNumber() {
    static std::atomic<uint64_t> last{0};
    return 1 + last.fetch_add(1, std::memory_order_relaxed);
  }
  // Returns a copy that has `view` for this worker. nullptr: a copy without the worker.
  std::unique_ptr<Roster> With(WorkerId id, const WorkerView* view) const {
    auto roster = std::make_unique<Roster>(*this);
    roster->number = NewNumber();
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
// and their blocks in the map. If the worker's version changes during a reading, a batch was shown
// or a run with named blocks of the worker was moved. The reader then reads that worker again.
class PrefixIndex::Impl {
 public:
  // `shard`: the number of this shard.
  Impl(const ContentKeys& keys, size_t shard) : keys_(keys), shard_(shard), reader_(keys) {}
  ~Impl();
  Status AddWorker(WorkerId id, const WorkerConfig& config);
  void RemoveWorker(WorkerId id);
  void ClearWorker(WorkerId id, bool forget_groups);
  Status LearnHashBlockSize(WorkerId id, int64_t hash_block_size);
  void LearnRules(WorkerId id, std::optional<EngineRules> rules);
  void NoteMissedBlocks(WorkerId id);
  void NoteRecord(WorkerId id);
  size_t NameBlocks(WorkerId id, std::span<const BlockHash> hashes,
                    std::span<const ContentKey> contents);
  ApplyResult Apply(WorkerId id, const EventBatch& batch);
  static IndexCounters CountersOf(const router::WorkerState& state);
  uint64_t writer_locks() const { return mutex_.taken(); }
  uint64_t batch_pauses() const { return mutex_.pauses(); }
  void BeginHidden(WorkerId id);
  void ApplyHidden(WorkerId id, const EventBatch& batch);
  void SwapHidden(WorkerId id);
  void DropHidden(WorkerId id);
  bool Reclaim();
  ResidencyTotals HiddenDigests(WorkerId id) const;
  // See IndexImage.
  void Freeze(std::span<const WorkerId> workers,
              const std::function<void(const router::FrozenShard&)>& use) const;
  Status RestoreLearned(WorkerId id, FieldReader& from);
  void Reserve(const router::ImageSize& size, size_t shards);
  // True: the runs were restored.
  bool RestoreRuns(WorkerId id, uint32_t number, std::span<const router::RunImage> runs);
  void ForEachResidency(WorkerId id, const VisitResidency& visit) const;
  // Reads the blocks of the workers `ids` (empty: of all workers). Then calls `answer(query)`. If
  // none of these workers is registered, does not call `answer`.
  template <typename Answer>
  void Query(const PromptBlocks& prompt, const router::QueryShape& shape,
             router::MatchQuery::Detail detail, std::span<const WorkerId> ids,
             Answer&& answer) const;
  const ContentKeys& keys() const { return keys_; }
  ContentKey ContentOf(WorkerId id, const BlockHash& hash);
  ReuseDiagnosis Diagnose(WorkerId id) const;
  PromptShape ShapeOf(WorkerId id) const;
  // Returns the result of `read` for the worker; `absent` if the worker is not registered.
  template <typename T, typename Read>
  T ReadWorker(WorkerId id, const T& absent, Read read) const {
    router::BetweenBatchesLock lock(mutex_);
    const auto it = slot_of_.find(id);
    return it == slot_of_.end() ? absent : read(*slots_[it->second]);
  }

 private:
  // Ends a change of the worker, and shows the change to queries. A query sees the whole change or
  // no part of it (I1).
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
  // The data of a paused batch. Its changes are not published.
  struct OpenBatch {
    router::StoreContent content;
    absl::flat_hash_set<uint64_t> news;
    std::vector<router::HolderId> closing;
    router::ResidencyMap::Unpublished unpublished;
  };
  // Work of a batch, in events, blocks or freed slots, after which the batch pauses if another
  // batch waits.
  static constexpr size_t kPauseAfter = 32;
  // Lets the waiting batches of other workers run. False: no batch waited. True: batches may have
  // run, so the caller must reset its cursors or call their ForgetHolder.
  bool PauseIfAwaited() KV_REQUIRES(mutex_);
  // Exchanges the data of the current batch and `batch`.
  void SwapBatch(OpenBatch& batch) KV_REQUIRES(mutex_);
  void ClearTier(router::WorkerState& worker, Tier tier) KV_REQUIRES(mutex_);
  bool SweepSome(size_t work) KV_REQUIRES(mutex_);
  // A step of ForEachResidency. False: the pass has ended.
  bool VisitSome(router::ResidencyMap::Pass& pass, router::WorkerSlot slot,
                 const VisitResidency& visit) const KV_REQUIRES(mutex_);
  // The sweep after a batch. Pauses as a batch does.
  void SweepAfter(size_t work) KV_REQUIRES(mutex_);
  router::HolderId OpenHolder(router::WorkerState& worker, Tier tier, uint8_t group)
      KV_REQUIRES(mutex_);
  void ForgetNames(router::WorkerState& worker) KV_REQUIRES(mutex_);
  // Returns the content that the worker gave the hash before. GivenContent::content is kUnnamed if
  // no such content is known.
  router::GivenContent KnownContent(router::WorkerState& worker, const BlockHash& hash)
      KV_REQUIRES(mutex_);
  router::SpanStart StartOf(router::WorkerState& worker, const BlockStored& event,
                            router::ResidencyMap::Cursor& cursor) KV_REQUIRES(mutex_);
  void ReadContent(router::WorkerState& worker, const BlockStored& event, Tier tier, uint8_t group,
                   const router::SpanStart& start) KV_REQUIRES(mutex_);
  // The current store. content_ has the content of its blocks.
  struct CurrentStore {
    const BlockStored& event;
    Tier tier;
    uint8_t group;
    router::SpanStart start;
    router::Holding holding;              // the holder of its blocks
    router::ResidencyMap::Cursor cursor;  // on the latest added block of the store
  };
  // Adds the blocks of the store. True: its holder did not have the first block before.
  bool HoldAll(router::WorkerState& worker, CurrentStore& store, router::BatchAhead& ahead)
      KV_REQUIRES(mutex_);
  // Adds one block. `more`: number of blocks that follow this block in the store. True: the holder
  // did not have the block before.
  bool Hold(router::WorkerState& worker, CurrentStore& store, const BlockHash& hash,
            router::BlockName name, size_t more) KV_REQUIRES(mutex_);
  // The name of a block that is added. If the block stays unnamed, `reason` is why.
  struct ChosenName {
    router::BlockName name;
    UnnamedReason reason;
  };
  // If the hash is ambiguous, removes the name from `chosen`. Otherwise, if `chosen` has no name,
  // sets the name that the worker gave the hash before.
  void ChooseName(router::WorkerState& worker, const CurrentStore& store, const BlockHash& hash,
                  ChosenName& chosen) KV_REQUIRES(mutex_);
  // Must be called after the map has refused to add a block, because the worker holds the hash
  // under another name, or another hash of the content. Changes the names. The map can then add the
  // block under `chosen`.
  void Reconcile(router::WorkerState& worker, const BlockHash& hash, router::Addition refusal,
                 ChosenName& chosen) KV_REQUIRES(mutex_);
  void SampleStore(router::WorkerState& worker, const CurrentStore& store) KV_REQUIRES(mutex_);
  // Adds the store to WorkerState::parked if its blocks cannot be named before its parent is named.
  // Names the parent if the store shows the content of the parent. Then names the blocks of the
  // stores in `parked` that follow the parent or a block of the store.
  void PassNames(router::WorkerState& worker, const BlockStored& event,
                 const router::SpanStart& start) KV_REQUIRES(mutex_);
  void NoteLookahead(router::WorkerState& worker, const BlockStored& event) KV_REQUIRES(mutex_);
  // True if any holder of the worker has the hash, or if `idle` still has its name.
  bool IsKnown(router::WorkerState& worker, const BlockHash& hash) KV_REQUIRES(mutex_);
  // True if the engine may drop a block for a draft head, and blocks may have several hashes. A hit
  // may then end inside a block.
  bool HitsEndInside(const router::WorkerState& worker) const KV_REQUIRES(mutex_);
  // Notes which blocks of the batch are new to the worker. Must be called before the batch is
  // applied.
  void NoteNews(router::WorkerState& worker, const EventBatch& batch) KV_REQUIRES(mutex_);
  bool WasHeldAllAlong(router::WorkerState& worker, const std::optional<BlockHash>& hash,
                       uint8_t group) KV_REQUIRES(mutex_);
  // Notes the reuse that an applied store shows. `added`: the group did not hold the first block of
  // the store before.
  void NoteReuse(router::WorkerState& worker, const BlockStored& event, uint8_t group,
                 const router::SpanStart& start, bool added) KV_REQUIRES(mutex_);
  // For workers whose hits may end inside blocks: notes the tokens of all units of the store. True:
  // the tokens of the first unit are new, and the parent was new when it was stored.
  bool NoteUnits(router::WorkerState& worker, const BlockStored& event, uint8_t group)
      KV_REQUIRES(mutex_);
  // Moves all copies of the block that the worker holds from one name to another. False: the worker
  // holds another hash of the new content, so the copies are unnamed.
  bool Rename(router::WorkerState& worker, const BlockHash& hash, const router::BlockName& from,
              const router::BlockName& to, bool follows, router::ResidencyMap::Cursor& cursor)
      KV_REQUIRES(mutex_);
  void Unname(router::WorkerState& worker, const BlockHash& hash, const router::BlockName& from)
      KV_REQUIRES(mutex_) {
    router::ResidencyMap::Cursor cursor;
    Rename(worker, hash, from, {}, false, cursor);
  }
  // Like NameBlocks, for one block. True: the block got a name.
  bool NameBlock(router::WorkerState& worker, const BlockHash& hash, ContentKey content)
      KV_REQUIRES(mutex_);
  // Adds the blocks of the run that the worker with this number in the image holds. False: the run
  // contradicts the runs before it.
  bool RestoreRun(router::WorkerState& worker, uint32_t number, const router::RunImage& run)
      KV_REQUIRES(mutex_);
  // Adds the blocks of one holder of the run. `index`: the position of the holder in
  // RunImage::holders.
  bool RestoreHolder(router::WorkerState& worker, const router::RunImage& run, size_t index)
      KV_REQUIRES(mutex_);
  // Adds the first blocks of the run, up to `blocks`, if they are new. Returns their number.
  size_t RestoreNew(router::WorkerState& worker, const router::RunImage& run, size_t blocks,
                    const router::Holding& holding, router::ResidencyMap::Cursor& cursor)
      KV_REQUIRES(mutex_);
  bool RestoreBlock(router::WorkerState& worker, const router::RunImage& run, size_t block,
                    router::Holding& holding, router::ResidencyMap::Cursor& cursor)
      KV_REQUIRES(mutex_);
  // Gives a block the name that NameBlocks, or the store of another block, states.
  void Learn(router::WorkerState& worker, const BlockHash& hash, const router::BlockName& name,
             bool follows, router::ResidencyMap::Cursor& cursor) KV_REQUIRES(mutex_);
  void NameParked(router::WorkerState& worker, const BlockHash& parent,
                  const router::GivenContent& name) KV_REQUIRES(mutex_);
  void Contradict(router::WorkerState& worker, const BlockHash& hash, ContentKey before,
                  ContentKey now) KV_REQUIRES(mutex_);
  // Marks the content as ambiguous, because the names from the worker contradict each other.
  void Doubt(router::WorkerState& worker, ContentKey content) KV_REQUIRES(mutex_);
  // Sets bytes_a_residency_.
  void WeighResidencies() KV_REQUIRES(mutex_);
  // Returns the number of leading events that only repeat blocks that the index has. The caller
  // must not apply these events.
  size_t SkipHitReport(router::WorkerState& worker, std::span<const Event> events)
      KV_REQUIRES(mutex_);
  void ApplyEvent(router::WorkerState& worker, const BlockStored& event, router::BatchAhead& ahead)
      KV_REQUIRES(mutex_);
  void ApplyEvent(router::WorkerState& worker, const BlockRemoved& event, router::BatchAhead& ahead,
                  router::Removals& removals) KV_REQUIRES(mutex_);
  void ApplyEvent(router::WorkerState& worker, const AllBlocksCleared& event) KV_REQUIRES(mutex_);
  // Adds the workers `ids` to `query`. If `ids` is empty, adds all workers.
  static void AskAll(const router::Roster& roster, std::span<const WorkerId> ids,
                     router::MatchQuery& query);

  uint64_t FingerprintOf(const BlockHash& hash) const { return fingerprint_(hash); }
  // The fingerprint of the hash in a group.
  uint64_t FingerprintOf(const BlockHash& hash, uint8_t group) const {
    return fingerprint_(hash) ^ uint64_t { group } * 0x9E3779B97F4A7C15;
  }

  const ContentKeys& keys_;
  const size_t shard_;
  // The seed comes from the secret of the keys, so that fingerprints in a saved state stay valid in
  // another process with equal keys.
  const router::SeededHash fingerprint_{keys_.Root({}) ^ 0x51ED270B7F3C9A55};
  mutable router::BatchMutex mutex_;
  router::StoreReader reader_ KV_GUARDED_BY(mutex_);
  router::StoreContent content_ KV_GUARDED_BY(mutex_);  // of the current store
  // Fingerprints of the current batch's blocks that are new to the worker.
  absl::flat_hash_set<uint64_t> news_ KV_GUARDED_BY(mutex_);
  SlabArena arena_;
  mutable ReclaimDomain reclaim_;
  router::HolderTable holder_table_{reclaim_};
  router::ResidencyMap map_{router::ProcessSeed(), arena_, reclaim_, holder_table_};
  std::unordered_map<WorkerId, router::WorkerSlot> slot_of_ KV_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<router::WorkerState>> slots_ KV_GUARDED_BY(mutex_);
  std::vector<router::WorkerSlot> free_slots_ KV_GUARDED_BY(mutex_);
  std::unordered_map<WorkerId, router::WorkerSlot> hidden_of_ KV_GUARDED_BY(mutex_);
  router::RuleSets rule_sets_ KV_GUARDED_BY(mutex_){reclaim_};
  std::vector<router::HolderId> closing_ KV_GUARDED_BY(mutex_);  // closed by Commit or Leave
  uint32_t states_ KV_GUARDED_BY(mutex_) = 0;                    // states made so far
  // Bytes of the index per (worker, tier, group, hash) entry, on average over all workers.
  double bytes_a_residency_ KV_GUARDED_BY(mutex_) = 0;
  size_t weigh_in_ KV_GUARDED_BY(mutex_) = 0;  // batches until the next measurement
  std::atomic<const router::Roster*> roster_{new router::Roster};  // I10
};

}  // namespace kvcast
