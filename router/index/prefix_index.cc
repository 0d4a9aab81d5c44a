// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "router/index/prefix_index_impl.h"

namespace kvcast {

using router::HolderId;
using router::MatchQuery;
using router::QueryShape;
using router::ResidencyMap;
using router::Roster;
using router::WorkerRules;
using router::WorkerState;
using router::WorkerView;

namespace {

// Number of read attempts without the mutex. If batches or moves disturb all attempts, the query
// takes the mutex.
constexpr int kReadings = 4;

// A step of ForEachResidency visits about this number of runs, holders of runs and blocks in total.
constexpr size_t kWorkOfAStep = 2048;

// nullopt: hash_block_size or lookahead of the prompt is out of range.
std::optional<QueryShape> ShapeOfQuery(const PromptBlocks& prompt, MatchPolicy policy) {
  const int64_t hash_block_size = prompt.hash_block_size;
  if (hash_block_size <= 0 || hash_block_size > kMaxBlockSize || prompt.lookahead < 0)
    return std::nullopt;
  const int64_t tokens = std::max<int64_t>(prompt.prompt_tokens, 1);
  const int64_t hashes =
      prompt.hashes.empty() ? std::ssize(prompt.integer_hashes) : std::ssize(prompt.hashes);
  const int64_t given = std::max(std::ssize(prompt.contents), hashes);
  const int64_t units =
      std::min(given, std::max<int64_t>(0, tokens - prompt.lookahead) / hash_block_size);
  return QueryShape{.hash_block_size = hash_block_size,
                    .units = std::min(units, (tokens - 1) / hash_block_size),
                    .prompt_units = units,
                    .prompt_tokens = tokens,
                    .policy = policy};
}

}  // namespace

ResidencyTotals PrefixIndex::Impl::HiddenDigests(WorkerId id) const {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = hidden_of_.find(id);
  if (it == hidden_of_.end() || !slots_[it->second]->digest) return {};
  return slots_[it->second]->digest->Totals();
}

void PrefixIndex::Impl::ForEachResidency(WorkerId id, const VisitResidency& visit) const {
  // A paused batch has published no change, so a step need not wait for the end of that batch.
  ResidencyMap::Pass pass;
  {
    router::BatchLock lock(mutex_);
    map_.BeginPass(pass);
  }
  for (bool more = true; more; mutex_.LetOthersRun()) {
    router::BatchLock lock(mutex_);
    const auto slot = slot_of_.find(id);
    more = slot != slot_of_.end() && VisitSome(pass, slot->second, visit);
    if (!more) map_.EndPass(pass);
  }
}

bool PrefixIndex::Impl::VisitSome(ResidencyMap::Pass& pass, router::WorkerSlot slot,
                                  const VisitResidency& visit) const {
  std::optional<router::Holder> where;
  return map_.Step(
      pass, kWorkOfAStep,
      [&](HolderId holder) {
        where = holder_table_.Read(holder);
        return where && where->slot == slot;
      },
      [&](HolderId, const BlockHash& hash, uint32_t copies) {
        visit(where->tier, where->group, hash, copies);
      });
}

IndexCounters PrefixIndex::Impl::CountersOf(const WorkerState& state) {
  IndexCounters counters = state.counters;
  counters.residencies = state.total();
  if (state.registry.one_hash_per_block()) {
    counters.whole_gpu_blocks = state.residencies[static_cast<size_t>(Tier::kGpu)];
  }
  counters.unnamed = state.total_unnamed();
  counters.dropped_stores = state.parked.dropped();
  counters.unnamed_gpu = state.unnamed[static_cast<size_t>(Tier::kGpu)];
  counters.forgotten_names = state.idle.forgotten();
  return counters;
}

void PrefixIndex::Impl::AskAll(const Roster& roster, std::span<const WorkerId> ids,
                               MatchQuery& query) {
  if (ids.empty()) query.AskAll(roster.by_order, roster.number);
  for (const WorkerId id : ids) {
    if (const WorkerView* view = roster.Find(id)) query.Ask(*view);
  }
}

PromptShape PrefixIndex::Impl::ShapeOf(WorkerId id) const {
  const ReclaimDomain::Pin pin(reclaim_);
  const WorkerView* const view = roster_.load(std::memory_order_acquire)->Find(id);  // I10
  if (view == nullptr) return {};
  const WorkerRules& rules = *view->rules.load(std::memory_order_acquire);  // I10
  return {.hash_block_size = rules.hash_block_size,
          .lookahead = rules.lookahead,
          // The values may belong to different batches, because no version is checked.
          .has_unnamed = view->unnamed.load(std::memory_order_acquire) % 2 != 0,
          .has_named = view->has_named.load(std::memory_order_acquire),
          .has_chunks = rules.has_chunks};
}

ContentKey PrefixIndex::Impl::ContentOf(WorkerId id, const BlockHash& hash) {
  router::BetweenBatchesLock lock(mutex_);
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return kUnnamed;
  ResidencyMap::Cursor cursor;
  const auto name = map_.NameOf(hash, slots_[it->second]->holders.all(), cursor);
  return name ? name->content() : kUnnamed;
}

template <typename Answer>
void PrefixIndex::Impl::Query(const PromptBlocks& prompt, const QueryShape& shape,
                              MatchQuery::Detail detail, std::span<const WorkerId> ids,
                              Answer&& answer) const {
  const ReclaimDomain::Pin pin(reclaim_);
  for (int reading = 0; reading < kReadings;) {
    const Roster* const roster = roster_.load(std::memory_order_acquire);  // I10
    MatchQuery query(map_, holder_table_, prompt, shape, detail, shard_);
    AskAll(*roster, ids, query);
    if (query.empty()) return;
    while (reading++ < kReadings) {
      if (query.Read()) return answer(query);
      // A worker was added, removed or replaced (I10).
      if (roster_.load(std::memory_order_acquire) != roster) break;
    }
  }
  // Under the mutex no version is odd. A paused batch has published no change.
  router::BatchLock lock(mutex_);
  MatchQuery query(map_, holder_table_, prompt, shape, detail, shard_);
  AskAll(*roster_.load(std::memory_order_relaxed), ids, query);  // I0
  if (query.empty()) return;
  KV_CHECK(query.Read());
  answer(query);
}

PrefixIndex::PrefixIndex(const ContentKeys& keys, size_t shards) {
  KV_CHECK(shards >= 1 && shards <= kMaxIndexShards);
  for (size_t i = 0; i < shards; ++i) shards_.push_back(std::make_unique<Impl>(keys, i));
}
PrefixIndex::~PrefixIndex() = default;

template <typename Visit>
void PrefixIndex::ForEachShard(std::span<const WorkerId> workers, Visit&& visit) const {
  if (workers.empty()) {
    for (const std::unique_ptr<Impl>& shard : shards_) visit(*shard, workers);
    return;
  }
  if (workers.size() == 1 || shards_.size() == 1) return visit(Of(workers[0]), workers);
  std::vector<WorkerId> ids;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    ids.clear();
    for (const WorkerId worker : workers) {
      if (ShardOf(worker) == shard) ids.push_back(worker);
    }
    if (!ids.empty()) visit(*shards_[shard], std::span<const WorkerId>(ids));
  }
}

Status PrefixIndex::AddWorker(WorkerId worker, const WorkerConfig& config) {
  return Of(worker).AddWorker(worker, config);
}
void PrefixIndex::RemoveWorker(WorkerId worker) { Of(worker).RemoveWorker(worker); }
void PrefixIndex::ClearWorker(WorkerId worker) { Of(worker).ClearWorker(worker, false); }
void PrefixIndex::RestartWorker(WorkerId worker) { Of(worker).ClearWorker(worker, true); }
Status PrefixIndex::LearnHashBlockSize(WorkerId worker, int64_t hash_block_size) {
  return Of(worker).LearnHashBlockSize(worker, hash_block_size);
}
void PrefixIndex::NoteMissedBlocks(WorkerId worker) { Of(worker).NoteMissedBlocks(worker); }
void PrefixIndex::NoteRecord(WorkerId worker) { Of(worker).NoteRecord(worker); }
void PrefixIndex::LearnRules(WorkerId worker, std::optional<EngineRules> rules) {
  Of(worker).LearnRules(worker, rules);
}
size_t PrefixIndex::NameBlocks(WorkerId worker, std::span<const BlockHash> hashes,
                               std::span<const ContentKey> contents) {
  return Of(worker).NameBlocks(worker, hashes, contents);
}
ApplyResult PrefixIndex::Apply(WorkerId worker, const EventBatch& batch) {
  return Of(worker).Apply(worker, batch);
}
void PrefixIndex::BeginHidden(WorkerId worker) { Of(worker).BeginHidden(worker); }
void PrefixIndex::ApplyHidden(WorkerId worker, const EventBatch& batch) {
  Of(worker).ApplyHidden(worker, batch);
}
void PrefixIndex::SwapHidden(WorkerId worker) { Of(worker).SwapHidden(worker); }
void PrefixIndex::DropHidden(WorkerId worker) { Of(worker).DropHidden(worker); }
bool PrefixIndex::Reclaim() {
  bool any = false;
  for (const std::unique_ptr<Impl>& shard : shards_) any = shard->Reclaim() || any;
  return any;
}
ResidencyTotals PrefixIndex::Digests(WorkerId worker) const {
  return Of(worker).ReadWorker(worker, ResidencyTotals(), [](const WorkerState& state) {
    return state.digest ? state.digest->Totals() : ResidencyTotals();
  });
}
ResidencyTotals PrefixIndex::HiddenDigests(WorkerId worker) const {
  return Of(worker).HiddenDigests(worker);
}
void PrefixIndex::ForEachResidency(WorkerId worker, const VisitResidency& visit) const {
  Of(worker).ForEachResidency(worker, visit);
}

std::vector<WorkerMatch> PrefixIndex::Match(std::span<const BlockHash> chain,
                                            int64_t hash_block_size, int64_t prompt_tokens,
                                            std::span<const WorkerId> workers,
                                            MatchPolicy policy) const {
  return Match(
      {.hash_block_size = hash_block_size, .prompt_tokens = prompt_tokens, .hashes = chain},
      workers, policy);
}

std::vector<WorkerMatch> PrefixIndex::Match(const PromptBlocks& prompt,
                                            std::span<const WorkerId> workers,
                                            MatchPolicy policy) const {
  const auto shape = ShapeOfQuery(prompt, policy);
  std::vector<WorkerMatch> matches;
  if (!shape) return matches;
  ForEachShard(workers, [&](const Impl& shard, std::span<const WorkerId> ids) {
    shard.Query(prompt, *shape, MatchQuery::Detail::kAll, ids,
                [&](const MatchQuery& query) { query.AddAnswers(matches); });
  });
  return matches;
}

std::vector<WorkerScore> PrefixIndex::Scores(const PromptBlocks& prompt,
                                             std::span<const WorkerId> workers) const {
  const auto shape = ShapeOfQuery(prompt, MatchPolicy::kExact);
  std::vector<WorkerScore> scores;
  if (!shape) return scores;
  ForEachShard(workers, [&](const Impl& shard, std::span<const WorkerId> ids) {
    shard.Query(prompt, *shape, MatchQuery::Detail::kScores, ids,
                [&](const MatchQuery& query) { query.AddScores(scores); });
  });
  return scores;
}

const ContentKeys& PrefixIndex::keys() const { return shards_[0]->keys(); }

ContentKey PrefixIndex::ContentOf(WorkerId worker, const BlockHash& hash) const {
  return Of(worker).ContentOf(worker, hash);
}

PromptShape PrefixIndex::ShapeOf(WorkerId worker) const { return Of(worker).ShapeOf(worker); }

std::vector<GroupSpec> PrefixIndex::Groups(WorkerId worker) const {
  return Of(worker).ReadWorker(worker, std::vector<GroupSpec>(),
                               [](const WorkerState& state) { return state.registry.Specs(); });
}

std::vector<uint64_t> PrefixIndex::GroupRejects(WorkerId worker) const {
  return Of(worker).ReadWorker(worker, std::vector<uint64_t>(),
                               [](const WorkerState& state) { return state.rejects; });
}

int64_t PrefixIndex::hash_block_size(WorkerId worker) const {
  return Of(worker).ReadWorker(worker, int64_t{0}, [](const WorkerState& state) {
    return state.registry.hash_block_size();
  });
}

IndexCounters PrefixIndex::counters(WorkerId worker) const {
  return Of(worker).ReadWorker(worker, IndexCounters(), &Impl::CountersOf);
}

uint64_t PrefixIndex::writer_locks() const {
  uint64_t locks = 0;
  for (const std::unique_ptr<Impl>& shard : shards_) locks += shard->writer_locks();
  return locks;
}

uint64_t PrefixIndex::batch_pauses() const {
  uint64_t pauses = 0;
  for (const std::unique_ptr<Impl>& shard : shards_) pauses += shard->batch_pauses();
  return pauses;
}

std::string_view UnknownPropertyName(UnknownProperty property) {
  switch (property) {
    case UnknownProperty::kKinds:
      return "kinds";
    case UnknownProperty::kWindow:
      return "window";
    case UnknownProperty::kChunkSize:
      return "chunk_size";
    case UnknownProperty::kGroups:
      return "groups";
    case UnknownProperty::kEagle:
      return "eagle";
    case UnknownProperty::kReplay:
      return "replay";
    case UnknownProperty::kBlockSize:
      return "block_size";
    case UnknownProperty::kAlignment:
      return "alignment";
    case UnknownProperty::kOffloadRule:
      return "offload_rule";
    case UnknownProperty::kLoadEnd:
      return "load_end";
    case UnknownProperty::kConflict:
      return "conflict";
    case UnknownProperty::kRelease:
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
