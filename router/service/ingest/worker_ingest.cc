// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/worker_ingest.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "kvcast/core/tier.h"

namespace kvcast::router {
namespace {

// True: a known event could not be decoded, so the state is suspect. An event with an unknown tag
// does not make the state suspect.
bool HasUndecodedEvent(const DecodeCounts& counts) {
  return counts.rejected_total() > counts.rejected[static_cast<size_t>(Reject::kUnknownEvent)];
}

void AddCounts(const DecodeCounts& from, DecodeCounts& to) {
  to.decoded += from.decoded;
  to.unknown_fields += from.unknown_fields;
  to.component_fields += from.component_fields;
  for (size_t i = 0; i < kRejectReasons; ++i) to.rejected[i] += from.rejected[i];
}

SchemeDetectorConfig DetectorConfig(const WorkerRegistration& source) {
  SchemeDetectorConfig config;
  config.algorithm = source.algorithm;
  config.seed = source.hash_seed;
  config.none_hash = source.none_hash;
  config.hash_block_size = source.worker.hash_block_size;
  config.seeds.insert(config.seeds.end(), source.candidate_seeds.begin(),
                      source.candidate_seeds.end());
  config.none_hashes = source.candidate_none_hashes;
  config.lora_paths = source.lora_paths;
  return config;
}

Result<HashScheme> AssumedScheme(const WorkerRegistration& source) {
  const HashAlgorithm algorithm = source.algorithm.value_or(HashAlgorithm::kSha256);
  const auto hasher = source.none_hash.empty()
                          ? BlockHasher::FromSeed(
                                algorithm, source.hash_seed.value_or(std::string(kDefaultHashSeed)))
                          : BlockHasher::FromNoneHash(algorithm, source.none_hash);
  if (!hasher.ok()) return hasher.status();
  const auto none_hash = hasher->none_hash().bytes();
  return HashScheme{algorithm, {none_hash.begin(), none_hash.end()}, EventHashForm::kInt64};
}

residency::SnapshotLimits SnapshotLimitsOf(const WorkerRegistration& source) {
  residency::SnapshotLimits limits;
  // A block may have several copies.
  const uint64_t copies = 2 * MaxResidencies(source.max_residencies, kMaxCountedGroups);
  limits.max_copies = std::min(limits.max_copies, copies);
  return limits;
}

// The lookup of TensorRT-LLM differs from that of vLLM.
std::string_view RuleDoubtOf(const WorkerRegistration& source) {
  if (source.format != EventFormat::kTrtllm) return {};
  if (source.trtllm.window_sizes.size() > 1) {
    return "rule: it is not known how TensorRT-LLM joins the hits of several windows";
  }
  if (source.trtllm.partial_reuse) {
    return "rule: the engine may reuse a part of a block; set partial_reuse to false if it does "
           "not";
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<WorkerIngest>> WorkerIngest::Create(
    WorkerId id, const WorkerRegistration& config, PrefixIndex& index,
    std::shared_ptr<ResidencyBudget> budget) {
  if (config.worker.name.empty()) {
    return Status(StatusCode::kInvalidArgument, "source: the name is empty");
  }
  Result<HashScheme> assumed = AssumedScheme(config);
  if (!assumed.ok()) return assumed.status();
  Result<SchemeDetector> detector = SchemeDetector::Create(DetectorConfig(config));
  if (!detector.ok()) return detector.status();
  WorkerConfig worker = config.worker;
  worker.digests = HasReplay(config);
  worker.repeats_are_refreshes |= config.format == EventFormat::kMooncake;
  std::optional<TrtllmEvents> trtllm;
  if (config.format == EventFormat::kTrtllm) {
    TrtllmConfig events = config.trtllm;
    if (config.rank_by_tag) events.attention_dp_rank = config.data_parallel_rank;
    Result<TrtllmEvents> made = TrtllmEvents::Create(events);
    if (!made.ok()) {
      return Status(made.status().code(), config.worker.name + ": " + made.status().message());
    }
    trtllm.emplace(std::move(made).value());
    worker.groups = TrtllmEvents::Groups(events);
  }
  if (Status status = index.AddWorker(id, worker); !status.ok()) {
    return Status(status.code(), config.worker.name + ": " + status.message());
  }
  std::unique_ptr<WorkerIngest> source(
      new WorkerIngest(id, config, index, std::move(detector).value(), std::move(assumed).value(),
                       std::move(budget)));
  source->trtllm_ = std::move(trtllm);
  return source;
}

WorkerIngest::Config WorkerIngest::ConfigOf(const WorkerRegistration& source, HashScheme assumed) {
  Config config{.name = source.worker.name,
                .model = source.model,
                .gpu_blocks = source.gpu_blocks,
                .max_residencies = source.max_residencies,
                .has_replay = HasReplay(source),
                .has_hash_block_size = source.worker.hash_block_size > 0,
                .assumed = std::move(assumed),
                .lora_paths = source.lora_paths,
                .rank = std::nullopt,
                .rule_doubt = RuleDoubtOf(source),
                .hides_inputs = source.format == EventFormat::kTrtllm};
  if (source.rank_by_tag && source.format == EventFormat::kEngine) {
    config.rank = source.data_parallel_rank;
  }
  return config;
}

WorkerIngest::WorkerIngest(WorkerId id, const WorkerRegistration& config, PrefixIndex& index,
                           SchemeDetector detector, HashScheme assumed,
                           std::shared_ptr<ResidencyBudget> budget)
    : id_(id),
      config_(ConfigOf(config, std::move(assumed))),
      index_(index),
      replica_(id, index, SnapshotLimitsOf(config)),
      share_(std::move(budget)),
      host_memory_(config.worker.offload_rule.value_or(OffloadRule::kConnector) ==
                   OffloadRule::kConnector),
      watch_(std::move(detector)),
      scheme_{.verdict = std::make_shared<const SchemeVerdict>(watch_.verdict()), .counters = {}} {
  if (config.format == EventFormat::kMooncake) mooncake_.emplace(config.mooncake);
}

// False: the payload is not a batch.
bool WorkerIngest::Decode(std::span<const uint8_t> payload, DecodeCounts& counts) {
  bool decoded;
  if (mooncake_) {
    decoded = DecodeMooncake(payload, counts);
  } else if (trtllm_) {
    decoded = DecodeTrtllm(payload, counts);
  } else {
    decoded = DecodeBatch(payload, WireLimits(), {.merge_removes = true}, batch_, counts).ok();
  }
  // After lost events, the decoder of TensorRT-LLM removes all blocks.
  if (!decoded || (trtllm_ && trtllm_->lacks_events())) ++doubts_.replacements;
  return decoded;
}

bool WorkerIngest::DecodeMooncake(std::span<const uint8_t> payload, DecodeCounts& counts) {
  const MooncakeCounters before = mooncake_->counters();
  Result<EventBatch> batch = mooncake_->Decode(payload);
  const MooncakeCounters now = mooncake_->counters();
  {
    MutexLock lock(mutex_);
    counters_.mooncake = now;
  }
  if (now.refused > before.refused) doubts_.inexact = doubts_.lacks_host_blocks = true;
  if (!batch.ok()) {
    mooncake_->Restart();
    return false;
  }
  batch_ = std::move(batch).value();
  counts.decoded = batch_.events.size();
  counts.rejected[static_cast<size_t>(Reject::kBadValue)] = now.bad_events - before.bad_events;
  return true;
}

bool WorkerIngest::DecodeTrtllm(std::span<const uint8_t> payload, DecodeCounts& counts) {
  const TrtllmCounters before = trtllm_->counters();
  Result<EventBatch> batch =
      trtllm_->Decode({reinterpret_cast<const char*>(payload.data()), payload.size()});
  const TrtllmCounters now = trtllm_->counters();
  {
    MutexLock lock(mutex_);
    counters_.trtllm = now;
    counters_.restarts += now.restarts - before.restarts;
    counters_.losses += now.gaps - before.gaps;
  }
  if (!batch.ok()) return false;
  batch_ = std::move(batch).value();
  counts.decoded = now.events - before.events;
  counts.rejected[static_cast<size_t>(Reject::kBadValue)] = now.bad_events - before.bad_events;
  return true;
}

// Drops the events of a batch that does not name this rank. False: the batch has events but names
// no rank, so the events may belong to this rank.
bool WorkerIngest::DropOtherRanks() {
  if (!config_.rank || batch_.data_parallel_rank == config_.rank) return true;
  const bool untagged = !batch_.data_parallel_rank && !batch_.events.empty();
  batch_.events.clear();
  MutexLock lock(mutex_);
  ++(untagged ? counters_.untagged_batches : counters_.other_rank_batches);
  return !untagged;
}

BatchResult WorkerIngest::OnBatch(std::span<const uint8_t> payload, Seq seq) {
  DecodeCounts counts;
  const bool decoded = Decode(payload, counts);
  const bool tagged = !decoded || DropOtherRanks();
  {
    MutexLock lock(mutex_);
    AddCounts(counts, counters_.decode);
    if (!decoded) ++counters_.undecodable_batches;
    if (!decoded) block_counts_.Clear();
  }
  if (counts.component_fields > 0) has_components_ = true;
  const bool doubtful = HasUndecodedEvent(counts) || !tagged;
  // The decoder of TensorRT-LLM removes the blocks that a lost event may have removed.
  if (decoded && doubtful && !trtllm_) doubts_.inexact = true;
  if (!decoded) {
    doubts_.inexact = false;
    NoteMissedBatches();
    // The batch may have contained removes. Without this reset, the index could report the removed
    // blocks forever.
    doubts_.undecodable += index_.counters(id_).residencies;
    replica_.Reset(/*restart=*/false);
    NoteIndexCounters(index_.counters(id_));
    return BatchResult::kUndecodable;
  }
  NoteBegin(seq);
  host_memory_.Adapt(batch_);
  NoteHashForm(batch_);
  watch_.Observe(batch_);
  NoteScheme();
  // NoteScheme may restart the worker, and the index then forgets the rules.
  NoteRelease(counts);
  NameFound();
  NoteClears();
  const ApplyResult applied = replica_.Apply(seq.value, batch_);
  size_t groups = 0;
  {
    MutexLock lock(mutex_);
    last_batch_ts_ = batch_.ts > 0 ? std::optional(batch_.ts) : std::nullopt;
    block_counts_.Apply(batch_, applied.left_out);
    groups = block_counts_.groups().size();
    index_counters_ = applied.counters;
  }
  NoteCacheSize(applied.counters, groups);
  if (observer_) observer_({seq, batch_, applied.left_out, doubtful && !trtllm_});
  // Polled batches can be large and rare, so their memory is not kept.
  if (trtllm_) batch_ = EventBatch();
  return ResultOf(applied, groups, doubtful);
}

BatchResult WorkerIngest::ResultOf(const ApplyResult& applied, size_t groups, bool doubtful) {
  if (IsTooLarge(applied.counters, groups)) return BatchResult::kTooLarge;
  if (replica_.Exceeds(config_.gpu_blocks)) return BatchResult::kRefuted;
  if (doubtful && !trtllm_) return BatchResult::kDoubtful;
  if (applied.unknown_removes > 0) return BatchResult::kImpossible;
  if (trtllm_ && !trtllm_->has_events()) return BatchResult::kNoEvents;
  if (Empties()) {
    // The events that could not be decoded may name blocks in host memory.
    if (doubts_.inexact.exchange(false)) doubts_.lacks_host_blocks = true;
    return BatchResult::kEmptied;
  }
  const auto gpu_blocks = static_cast<uint64_t>(config_.gpu_blocks);
  if (gpu_blocks > 0 && applied.counters.whole_gpu_blocks >= gpu_blocks) {
    return BatchResult::kComplete;
  }
  if (!trtllm_) return BatchResult::kApplied;
  return trtllm_->lacks_events() ? BatchResult::kIncomplete : BatchResult::kComplete;
}

// The first batch of an epoch shows whether earlier blocks are missing.
void WorkerIngest::NoteBegin(Seq seq) {
  if (std::exchange(epoch_.began, true)) return;
  if (seq.value == 0 && !(trtllm_ && trtllm_->lacks_events())) return;
  index_.NoteMissedBlocks(id_);
  NoteMissedBatches();
}

void WorkerIngest::NoteMissedBatches() {
  doubts_.lacks_host_blocks = true;
  host_memory_.NoteMissedStores();
}

bool WorkerIngest::IsTooLarge(const IndexCounters& now, size_t groups) {
  const uint64_t held = now.residencies;
  const bool over_budget = share_.Note(held);
  if (!over_budget && held <= MaxResidencies(config_.max_residencies, groups) &&
      !replica_.HasTooManyCopies(held)) {
    return false;
  }
  MutexLock lock(mutex_);
  ++counters_.oversized;
  return true;
}

void WorkerIngest::NoteApplyTime(int64_t ns) {
  MutexLock lock(mutex_);
  counters_.apply_ns += ns;
}

// The index keeps the learned rules until the worker is restarted. Only stores that leave out
// blocks show a fork of an older release. The fork's earlier stores look like stores of v0.33.
void WorkerIngest::NoteRelease(const DecodeCounts& counts) {
  if (counts.skipped_fields > 0) {
    const Release before = std::exchange(epoch_.release, Release::kFork);
    if (before == Release::kV033) index_.LearnRules(id_, std::nullopt);
  }
  if (counts.wide_stores == 0 || epoch_.release != Release::kUnknown) return;
  epoch_.release = Release::kV033;
  index_.LearnRules(id_, EngineRules::kV033);
}

void WorkerIngest::NoteIndexCounters(const IndexCounters& now) {
  share_.Note(now.residencies);
  MutexLock lock(mutex_);
  index_counters_ = now;
}

// An engine removes blocks when its pool is full. Window groups need few blocks, so the
// full-attention groups are assumed to share the whole pool equally.
void WorkerIngest::NoteCacheSize(const IndexCounters& now, size_t groups) {
  uint64_t blocks = static_cast<uint64_t>(config_.gpu_blocks);
  if (blocks == 0 && now.removed_blocks > 0) blocks = now.whole_gpu_blocks;
  blocks = std::max(blocks, cache_size_.blocks);
  if (blocks == cache_size_.blocks && groups == cache_size_.groups) return;
  int64_t full_groups = 0;
  int64_t block_size = 0;
  for (const GroupSpec& group : index_.Groups(id_)) {
    if (!IsFullKind(group.kind)) continue;
    ++full_groups;
    block_size = std::max(block_size, group.block_size);
  }
  if (full_groups == 0) return;
  cache_size_.blocks = blocks;
  cache_size_.groups = groups;
  cache_size_.tokens = static_cast<int64_t>(blocks) * block_size / full_groups;
}

IndexCounters WorkerIngest::index_counters() const {
  MutexLock lock(mutex_);
  return index_counters_;
}

void WorkerIngest::NameFound() {
  const std::vector<FoundNames> found = found_names_.Take();
  if (found.empty() || verdict()->state != SchemeState::kMatched) return;
  const HashScheme now = scheme();
  for (const FoundNames& names : found) {
    // The engine may have restarted since the names were computed.
    if (names.scheme != now) continue;
    index_.NameBlocks(id_, std::span(*names.hashes).first(names.units),
                      std::span(*names.contents).first(names.units));
  }
}

// True: the engine has cleared its cache, and the index has had no blocks of other tiers.
bool WorkerIngest::Empties() const {
  const bool cleared = std::ranges::any_of(batch_.events, [](const Event& event) {
    const auto* clear = std::get_if<AllBlocksCleared>(&event);
    return clear != nullptr && TierOf(clear->medium) == Tier::kGpu;
  });
  if (!cleared) return false;
  // A clear of the GPU gives no information about the other tiers.
  MutexLock lock(mutex_);
  return std::ranges::none_of(block_counts_.groups(), [](const GroupTally& group) {
    return std::any_of(group.tiers.begin() + 1, group.tiers.end(),
                       [](const GroupTally::InTier& tier) { return tier.stored > 0; });
  });
}

bool WorkerIngest::NoteReuse(int64_t predicted_tokens, int64_t cached_tokens, bool comparable) {
  MutexLock lock(mutex_);
  if (comparable) feedback_.Compare(cached_tokens - predicted_tokens);
  return feedback_.Note(predicted_tokens, cached_tokens);
}

std::optional<int64_t> WorkerIngest::reuse_contradiction() const {
  MutexLock lock(mutex_);
  return feedback_.contradiction();
}

uint64_t WorkerIngest::BeginChallenge() {
  const uint64_t nonce = watch_.BeginChallenge();
  const MutexLock lock(mutex_);
  counters_.challenges = watch_.challenges();
  return nonce;
}

void WorkerIngest::OnChallengeAnswer(std::span<const uint8_t> payload) {
  const auto answer = watch_.TakeAnswer(payload);
  {
    const MutexLock lock(mutex_);
    counters_.challenges = watch_.challenges();
  }
  if (!answer) return;
  NoteHashForm(*answer);
  NoteScheme();
}

void WorkerIngest::NoteHashForm(const EventBatch& batch) {
  for (const Event& event : batch.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || stored->block_hashes.empty()) continue;
    form_ = stored->block_hashes[0].is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
    return;
  }
}

// Must be called before the batch is applied. Until the index has the hash block size, it uses the
// greatest common divisor of the block sizes, which may be too large.
void WorkerIngest::NoteScheme() {
  const SchemeVerdict& now = watch_.verdict();
  bool changed;
  {
    MutexLock lock(mutex_);
    scheme_.counters = watch_.counters();
    changed = *scheme_.verdict != now;
    if (changed) scheme_.verdict = std::make_shared<const SchemeVerdict>(now);
  }
  doubts_.contradicted = watch_.is_contradicted();
  if (changed && now.scheme) LearnHashBlockSize(now.scheme->hash_block_size);
}

void WorkerIngest::LearnHashBlockSize(int64_t hash_block_size) {
  if (index_.LearnHashBlockSize(id_, hash_block_size).ok() || config_.has_hash_block_size) return;
  // If the new hash_block_size does not divide the size of known blocks, these blocks belong to an
  // earlier engine. The index also drops the blocks that the new engine stored before this batch,
  // so the source is suspect.
  ++doubts_.replacements;
  const bool inexact = doubts_.inexact.exchange(true);
  {
    const MutexLock lock(mutex_);
    block_counts_.Clear();
  }
  index_.RestartWorker(id_);
  epoch_.release = Release::kUnknown;
  // If a registered group contradicts the size, QueryEngine refuses the worker for this reason.
  if (!index_.LearnHashBlockSize(id_, hash_block_size).ok()) doubts_.inexact = inexact;
}

std::string_view WorkerIngest::rule_doubt() const {
  if (has_components_) {
    return "components: the events name single components of a block, and only whole blocks "
           "are indexed";
  }
  return config_.rule_doubt;
}

std::string WorkerIngest::lora_path(const std::string& name) const {
  const auto it = config_.lora_paths.find(name);
  return it == config_.lora_paths.end() ? std::string() : it->second;
}

std::shared_ptr<const SchemeVerdict> WorkerIngest::verdict() const {
  MutexLock lock(mutex_);
  return scheme_.verdict;
}

SchemeCounters WorkerIngest::scheme_counters() const {
  MutexLock lock(mutex_);
  return scheme_.counters;
}

SourceCounters WorkerIngest::counters() const {
  MutexLock lock(mutex_);
  SourceCounters counters = counters_;
  counters.dropped_names = found_names_.dropped();
  return counters;
}

std::vector<GroupTally> WorkerIngest::group_tallies() const {
  MutexLock lock(mutex_);
  return block_counts_.groups();
}

std::optional<double> WorkerIngest::last_batch_ts() const {
  MutexLock lock(mutex_);
  return last_batch_ts_;
}

SourceState WorkerIngest::State(SourceState stream) const {
  return stream == SourceState::kSynced && doubts_.inexact ? SourceState::kSuspect : stream;
}

}  // namespace kvcast::router
